import closeWithGrace from 'close-with-grace';

/** Beyond the grace period, time for what takes time to end, in milliseconds; then the process ends as it is. */
export const LAST_RESORT_MS = 10_000;

/**
 * Signals closer together than this, in milliseconds, are one order to stop: npm passes on what the terminal, `timeout`
 * or systemd has sent to every process already.
 */
const SAME_ORDER_MS = 500;

const STOP_SIGNALS = ['SIGINT', 'SIGTERM'] as const;

/** Why a process ends. With neither of the two, it was told so by other means. */
export interface ClosingReason {
  signal?: NodeJS.Signals;
  err?: Error;
}

export interface Closer {
  /** Ends the process in order, as a signal would. */
  close(): void;
  /** Leaves the process to itself again. */
  uninstall(): void;
}

export interface ClosingOptions {
  /** What `close` may take, in milliseconds, apart from what takes time to end by itself. */
  graceMs: number;
  /** Is told why a process ends before everything is in order. */
  report?(message: unknown): void;
}

/**
 * Ends this process in order, with exit code 0, at the first SIGINT or SIGTERM; and with 1 after an error that nobody
 * caught, when `close` fails, and when it takes too long. Whoever orders it a second time does not want to wait: the
 * process ends at once.
 *
 * @param close is called once
 */
export function closeInOrder(
  { graceMs, report = () => undefined }: ClosingOptions,
  close: (reason: ClosingReason) => Promise<void>,
): Closer {
  let order: { signal: NodeJS.Signals; at: number } | undefined;
  let isClosing = false;
  const closer = closeWithGrace(
    { delay: graceMs + LAST_RESORT_MS, logger: { error: report }, skip: [...STOP_SIGNALS] },
    ({ signal = order?.signal, err }) => {
      isClosing = true;
      return close({ ...(signal && { signal }), ...(err && { err }) });
    },
  );
  const begin = () => {
    if (!isClosing) void closer.close();
  };
  // These listeners stay: were there none for a moment, a signal in that moment would end the process as it is.
  const onSignal = (signal: NodeJS.Signals) => {
    if (!order) {
      order = { signal, at: performance.now() };
      begin();
    } else if (performance.now() - order.at > SAME_ORDER_MS) {
      report(`a second signal, ${signal}: ending at once`);
      // biome-ignore lint/nursery/noProcessExit: to end right away is what was ordered
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
