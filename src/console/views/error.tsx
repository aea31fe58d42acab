import type { Cure } from '../console-error.ts';

interface ErrorProps {
  title: string;
  message: string;
  cure: Cure | undefined;
  requestId: string;
}

/** The one page for all that goes wrong. */
export function ErrorView({ title, message, cure, requestId }: ErrorProps) {
  return (
    <div class="narrow">
      <h1>{title}</h1>
      <p>{message}</p>
      {cure && <p>{cure.text}</p>}
      {cure?.command !== undefined && <pre class="panel">{cure.command}</pre>}
      <p class="quiet">
        Request <span class="mono">{requestId}</span>
      </p>
    </div>
  );
}
