/** Whether an automation takes triggers and starts runs: a word, a sign and a colour. */
export function State({ state }: { state: 'enabled' | 'disabled' | 'paused' }) {
  const signs = { enabled: '●', disabled: '○', paused: '‖' };
  return (
    <span class={`pill state ${state}`}>
      <i aria-hidden="true">{signs[state]}</i>
      {state}
    </span>
  );
}
