import { withDeadline } from '../core/deadline.ts';
import type { AttemptResult } from '../core/run.ts';
import { type ActionContext, TIMED_OUT } from './actions/action.ts';

/**
 * How long an action may take to end what it started, in milliseconds: a little more than a command needs that has to be
 * killed, and less than the worker waits at its own end. After that its attempt settles without it.
 */
const ENDING_MS = 6500;

/** How long an attempt that is done waits until what it leaves is removed, in milliseconds. */
const TIDYING_MS = 60_000;

/**
 * Lets an action act until it is done, its time limit is over, or the attempt must end early. All action types go this
 * way, so that an attempt settles whatever its action waits for, even if the action ignores its signal.
 *
 * @param signal aborted when the attempt must end early; its reason is handed on, unless the time limit came first
 */
export async function settleAttempt(
  act: (context: Pick<ActionContext, 'signal' | 'tidyUp'>) => Promise<AttemptResult | 'interrupted'>,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<AttemptResult | 'interrupted'> {
  const ending = new AbortController();
  const interrupt = () => ending.abort(signal.reason);
  const timeLimit = setTimeout(() => ending.abort(TIMED_OUT), timeoutMs);
  const removals: Promise<unknown>[] = [];
  const tidyUp = (removal: Promise<unknown>) => void removals.push(removal);
  let givingUp: NodeJS.Timeout | undefined;
  const givenUp = new Promise<'interrupted'>((resolve) => {
    ending.signal.addEventListener('abort', () => {
      givingUp = setTimeout(resolve, ENDING_MS, 'interrupted');
    });
  });
  signal.addEventListener('abort', interrupt);
  if (signal.aborted) interrupt();
  const acting = Promise.race([act({ signal: ending.signal, tidyUp }), givenUp]);
  try {
    const result = await acting.finally(() => clearTimeout(timeLimit));
    const isTimedOut = result === 'interrupted' && ending.signal.reason === TIMED_OUT;
    return isTimedOut ? timedOut(`The attempt took longer than ${timeoutMs} ms and was ended.`) : result;
  } finally {
    const tidying = Promise.race([Promise.allSettled(removals), givenUp]);
    await withDeadline(tidying, TIDYING_MS).catch(() => undefined);
    clearTimeout(givingUp);
    signal.removeEventListener('abort', interrupt);
  }
}

function timedOut(message: string): AttemptResult {
  return { outcome: { status: 'timed_out', reason: 'timeout', message }, mayRetry: true };
}
