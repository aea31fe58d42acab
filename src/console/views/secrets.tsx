import { curlLine } from '../../core/curl-line.ts';

interface SecretsProps {
  slug: string;
  title: string;
  apiKey?: string | undefined;
  signingSecret?: string | undefined;
  /** What becomes of the old one. */
  note?: string | undefined;
  /** The API's origin for callers. */
  apiUrl: string;
}

/** Secrets that were just issued. This page is the answer to a form and the only place that ever has them. */
export function Secrets({ slug, title, apiKey, signingSecret, note, apiUrl }: SecretsProps) {
  return (
    <>
      <h1>{title}</h1>
      {apiKey !== undefined && (
        <section class="secret">
          <h2>Its API key, shown this once</h2>
          <p class="quiet">
            Keep it in the secrets of whoever calls it. A lost key is replaced by rotating it.
          </p>
          <Copied id="api-key" text={apiKey} label="Copy the key" />
        </section>
      )}
      {signingSecret !== undefined && (
        <section class="secret">
          <h2>Its signing secret, shown this once</h2>
          <p class="quiet">
            Whoever receives its deliveries or events verifies with it that they are from here (Standard
            Webhooks).
          </p>
          <Copied id="signing-secret" text={signingSecret} label="Copy the secret" />
        </section>
      )}
      {note !== undefined && <p>{note}</p>}
      {apiKey !== undefined && (
        <>
          <h2>Start a run</h2>
          <Copied id="curl" text={curlLine(apiUrl, slug, apiKey)} label="Copy the line" className="term" />
        </>
      )}
      <p class="actions">
        <a class="btn main" href={`/automations/${slug}`}>
          I have saved it
        </a>
        <span class="quiet">It cannot be shown again, not even by reloading this page.</span>
      </p>
    </>
  );
}

/** A text with a button that copies it, which the script shows. */
function Copied({
  id,
  text,
  label,
  className = '',
}: {
  id: string;
  text: string;
  label: string;
  className?: string;
}) {
  return (
    <div class="copied">
      <pre class={`mono ${className}`} id={id}>
        {text}
      </pre>
      <button class="btn" type="button" data-copy={id} hidden>
        {label}
      </button>
    </div>
  );
}
