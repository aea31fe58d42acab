import { symbols } from 'pino';
import { createLogger } from '../../src/logger.ts';

export type LogLine = Record<string, unknown>;

/** The production logger of the API, writing into memory. */
export function memoryLogger() {
  const text: string[] = [];
  let wake = () => {};
  const logger = createLogger('debug', 'api');
  const write = (line: string) => {
    text.push(line);
    wake();
  };
  Object.assign(logger, { [symbols.streamSym]: { write } });
  const lines = () => text.map((line) => JSON.parse(line) as LogLine);
  const next = () =>
    new Promise<void>((resolve) => {
      wake = resolve;
    });
  /** All lines of a kind, once there are so many. */
  const find = async (isWanted: (line: LogLine) => boolean, atLeast = 1): Promise<LogLine[]> => {
    for (;;) {
      const found = lines().filter(isWanted);
      if (found.length >= atLeast) return found;
      await next();
    }
  };
  return {
    logger,
    text,
    /** All lines about a request, once there is one. */
    of: (requestId: string) => find((line) => line['requestId'] === requestId),
    find,
  };
}
