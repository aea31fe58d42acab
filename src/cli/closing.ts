import closeWithGrace from 'close-with-grace';

/** Time to close beyond the grace period, in milliseconds; then the process exits in any state. */
export const LAST_RESORT_MS = 10_000;

/**
 * Signals closer together than this, in milliseconds, count as one: npm repeats a signal that the terminal, `timeout` or
 * systemd has already sent to every process.
 */
const SAME_SIGNAL_MS = 500;

const STOP_SIGNALS = ['SIGINT', 'SIGTERM'] as const;

/** Why a process ends; neither is set when `close` was called. */
export interface ClosingReason {
  signal?: NodeJS.Signals;
  err?: Error;
}

export interface Closer {
  /** Shuts the process down as a signal would. */
  close(): void;
  /** Removes the listeners. */
  uninstall(): void;
}

export interface ClosingOptions {
  /** How long `close` may take, in milliseconds; {@link LAST_RESORT_MS} comes on top. */
  graceMs: number;
  /** A signal that means something else to this process; others than SIGINT and SIGTERM shut it down as well. */
  except?: 'SIGUSR2';
  /** Is told why a process ends before everything is in order. */
  report?(message: unknown): void;
}

/**
 * Shuts this process down at the first SIGINT or SIGTERM, with exit code 0. The exit code is 1 after an uncaught error, when
 * `close` fails, and when it takes too long. A second signal ends the process at once.
 *
 * @param close is called once
 */
export function closeInOrder(
  { graceMs, except, report = () => undefined }: ClosingOptions,
  close: (reason: ClosingReason) => Promise<void>,
): Closer {
  let first: { signal: NodeJS.Signals; at: number } | undefined;
  let isClosing = false;
  const closer = closeWithGrace(
    {
      delay: graceMs + LAST_RESORT_MS,
      logger: { error: report },
      skip: [...STOP_SIGNALS, ...(except ? [except] : [])],
    },
    ({ signal = first?.signal, err }) => {
      isClosing = true;
      return close({ ...(signal && { signal }), ...(err && { err }) });
    },
  );
  const begin = () => {
    if (!isClosing) void closer.close();
  };
  // These listeners stay: without any, a signal would end the process at once.
  const onSignal = (signal: NodeJS.Signals) => {
    if (!first) {
      first = { signal, at: performance.now() };
      begin();
    } else if (performance.now() - first.at > SAME_SIGNAL_MS) {
      report(`a second signal, ${signal}: ending at once`);
      // biome-ignore lint/plugin: a second signal asks to end at once
      process.exit(1);
    }
  };
  for (const signal of STOP_SIGNALS) process.on(signal, onSignal);
  return {
    close: begin,
    uninstall: () => {
      closer.uninstall();
      for (const signal of STOP_SIGNALS) process.off(signal, onSignal);
    },
  };
}
