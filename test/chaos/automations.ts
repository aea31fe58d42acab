import type { Action } from '../../src/core/actions/actions.ts';
import type { WhenBusy } from '../../src/core/automation.ts';
import type { Store } from '../../src/store/store.ts';
import type { ChaosAutomation } from './history.ts';
import { EVENTS, FLAKY, HOSTILE, type Receiver } from './receiver.ts';

/** Triggered by scenarios only: its first attempt outlives the lock of a dead worker, the others are short. */
export const LONG = 'long-lane-command';
const LONG_TICKS = 900;

/** Each line is appended by one write, so that the lines of the file are in the order in which things happened. */
const MARK = (sign: string) => `echo "$ORC_AUTOMATION $ORC_RUN_ID $ORC_ATTEMPT.$$ ${sign}" >> "$MARKS"`;
const SCRIPT = [
  MARK('start'),
  'ticks=$TICKS',
  '[ $ORC_ATTEMPT -eq 1 ] || ticks=2',
  `while [ $ticks -gt 0 ]; do sleep 0.05; ${MARK('tick')}; ticks=$((ticks - 1)); done`,
  MARK('end'),
].join('\n');

/** What scenarios pause and resume. */
export const PAUSABLE = ['pausable', 'pausable-lane', 'pausable-skip'] as const;

interface Kind extends Omit<ChaosAutomation, 'slug' | 'isExclusive'> {
  /** How often it is triggered, in proportion to the others. */
  weight: number;
  attempts?: number;
  concurrency?: number;
  whenBusy?: WhenBusy;
  timeoutMs?: number;
  ticks?: number;
}

const KINDS: Record<string, Kind> = {
  deliver: { weight: 54, action: 'http', onWorkerLoss: 'rerun', executions: 1 },
  'deliver-once': { weight: 18, action: 'http', onWorkerLoss: 'fail', executions: 1 },
  [FLAKY]: { weight: 3, action: 'http', onWorkerLoss: 'rerun', executions: 2, attempts: 3 },
  lane: { weight: 8, action: 'http', onWorkerLoss: 'rerun', executions: 1, concurrency: 1 },
  'lane-once': { weight: 3, action: 'http', onWorkerLoss: 'fail', executions: 1, concurrency: 1 },
  'wide-lane': { weight: 3, action: 'http', onWorkerLoss: 'rerun', executions: 1, concurrency: 3 },
  pausable: { weight: 4, action: 'http', onWorkerLoss: 'rerun', executions: 1 },
  'pausable-lane': { weight: 3, action: 'http', onWorkerLoss: 'rerun', executions: 1, concurrency: 1 },
  'pausable-skip': {
    weight: 5,
    action: 'http',
    onWorkerLoss: 'rerun',
    executions: 1,
    concurrency: 1,
    whenBusy: 'skip',
    isSkipping: true,
  },
  command: { weight: 5, action: 'command', onWorkerLoss: 'rerun', executions: 1, ticks: 0 },
  'command-once': { weight: 4, action: 'command', onWorkerLoss: 'fail', executions: 1, ticks: 1 },
  'lane-command': {
    weight: 2,
    action: 'command',
    onWorkerLoss: 'rerun',
    executions: 1,
    concurrency: 1,
    ticks: 2,
  },
  [LONG]: {
    weight: 0,
    action: 'command',
    onWorkerLoss: 'rerun',
    executions: 1,
    concurrency: 1,
    ticks: LONG_TICKS,
  },
  [HOSTILE]: {
    weight: 0,
    action: 'http',
    onWorkerLoss: 'rerun',
    executions: 1,
    timeoutMs: 1500,
    failures: ['http_status', 'network_error', 'timeout'],
  },
};

export interface TriggeredAutomation extends ChaosAutomation {
  weight: number;
  apiKey: string;
}

/**
 * Creates one automation of each kind.
 *
 * @param marksFile where commands note their executions
 */
export async function createAutomations(
  store: Store,
  receiver: Receiver,
  marksFile: string,
): Promise<Map<string, TriggeredAutomation>> {
  const automations = new Map<string, TriggeredAutomation>();
  for (const [slug, kind] of Object.entries(KINDS)) {
    const { weight, attempts = 1, concurrency, whenBusy, timeoutMs, ticks = 0, ...judged } = kind;
    const { action, onWorkerLoss } = judged;
    const command: Action = {
      type: 'command',
      argv: ['/bin/sh', '-c', SCRIPT],
      env: { MARKS: marksFile, TICKS: String(ticks) },
      passEnv: [],
    };
    const created = await store.automations.create({
      slug,
      name: '',
      enabled: true,
      action: action === 'http' ? { type: 'http', url: receiver.urlOf(slug) } : command,
      attempts,
      onWorkerLoss,
      onEnd: receiver.urlOf(EVENTS),
      ...(concurrency !== undefined && { concurrency }),
      ...(whenBusy && { whenBusy }),
      ...(timeoutMs !== undefined && { timeoutMs }),
    });
    if (created.status === 'exists') throw new Error(`${slug} exists`);
    const isExclusive = concurrency === 1;
    const { apiKey } = created;
    automations.set(slug, { ...judged, slug, weight, apiKey, isExclusive, hasEvents: true });
  }
  return automations;
}
