/** What a login link opens. */
export function LoginView({ token }: { token: string }) {
  return (
    <form class="narrow" method="post" action="/login">
      <h1>Log in to orc</h1>
      <p>This link works once, within 15 minutes.</p>
      <input type="hidden" name="token" value={token} />
      <button class="btn main" type="submit">
        Log in
      </button>
    </form>
  );
}
