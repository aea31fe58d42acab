import type { OnWorkerLoss } from '../../src/core/automation.ts';
import type { Run, RunEndReason, RunStatus } from '../../src/core/run.ts';
import { acceptedAtOf } from '../../src/store/run-id.ts';

/** All times in here are milliseconds since the epoch. */

/** An end that is older than this is written, in milliseconds. */
const WRITTEN_MS = 2000;

/** How a request ended, as far as its sender can know. */
export type Answer =
  /** 202: the run is promised. */
  | { kind: 'accepted'; runId: string; status: string; isReplay: boolean }
  /** 503 that says that nothing was accepted. */
  | { kind: 'refused'; error: string }
  /** No answer, or the 503 that says that the run may exist. */
  | { kind: 'uncertain'; reason: string }
  /** The connection was refused, so that nothing was sent. */
  | { kind: 'unsent' }
  /** Anything that no fault explains. */
  | { kind: 'unexpected'; statusCode: number; body: string };

export interface SentRequest {
  /** Its `x-request-id`, by which its run is found whatever it was answered. */
  id: string;
  /** The API process it was sent to. */
  api: string;
  sentAt: number;
  answeredAt?: number;
  answer?: Answer;
}

/** What a caller wants done once. It sends more than one request for it only with an idempotency key. */
export interface Operation {
  id: number;
  slug: string;
  scenario: string;
  idempotencyKey?: string;
  payload: string;
  requests: SentRequest[];
}

/** What the judge has to know of an automation. */
export interface ChaosAutomation {
  slug: string;
  onWorkerLoss: OnWorkerLoss;
  action: 'http' | 'command';
  /** Executions that a run has when no worker dies. */
  executions: number;
  /** How its runs may fail; none of the others' does. */
  failures?: readonly RunEndReason[];
  /** Whether a run that finds no place ends at once, and is never executed. */
  isSkipping?: boolean;
  /** Whether a URL is told when its runs have ended. */
  hasEvents?: boolean;
  /** Whether no two of its runs may execute at the same time. */
  isExclusive: boolean;
}

/** One sign of an execution. Those of one source are in the order in which they happened. */
export interface Mark {
  slug: string;
  runId: string;
  /** Tells the executions of one run apart. */
  execution: string;
  sign: 'start' | 'tick' | 'end';
  /** What was handed over, where it is seen. */
  payload?: string;
  at?: number;
}

/** What a worker process says about an attempt. */
export interface AttemptRecord {
  runId: string;
  worker: string;
  startedAt: number;
  endedAt?: number;
  isLockLost?: boolean;
}

export const FAULT_KINDS = [
  'Redis killed',
  'Redis frozen',
  'Redis full',
  'Redis restored',
  'API killed',
  'worker killed',
  'worker frozen',
  'worker drained',
  'automation paused',
  'connections cut',
  'reply dropped',
  'receivers hostile',
  'clients hang up',
] as const;
export type FaultKind = (typeof FAULT_KINDS)[number];

/** What stops while a fault lasts, and is waited for afterwards. */
export type Work = 'accepting' | 'executing';

export interface Fault {
  kind: FaultKind;
  scenario: string;
  /** The processes it hits; all of them when there are none. */
  parts: string[];
  startedAt: number;
  endedAt?: number;
  /** From its end until the work went on, in milliseconds; missing when another fault came first. */
  recoveryMs: Partial<Record<Work, number>>;
}

/** What happened between the two is undone: Redis was given back a backup that is older. */
export interface Restore {
  /** When copying it began. */
  takenAt: number;
  /** When Redis was up again; infinite until then. */
  restoredAt: number;
}

/** An automation starts nothing from a moment after its pause until it is resumed. */
export interface Pause {
  slug: string;
  /** When Redis had confirmed it. */
  pausedAt: number;
  /** When resuming began; infinite until then. */
  resumedAt: number;
}

export interface TerminalState {
  status: RunStatus;
  endedAt: number | undefined;
  message: string | undefined;
}

/** Something seen along the way that must not be. */
export interface Incident {
  kind: string;
  message: string;
  runId?: string;
}

export type FinalRuns = ReadonlyMap<string, Run>;

/** Everything that was sent, answered, executed, broken and read. */
export class History {
  readonly operations: Operation[] = [];
  readonly operationOfRequest = new Map<string, Operation>();
  readonly deliveries: Mark[] = [];
  /** The `webhook-id`s of the events that arrived, by run. */
  readonly events = new Map<string, Set<string>>();
  /** How many arrived, repetitions included. */
  eventsReceived = 0;
  readonly attempts = new Map<string, AttemptRecord[]>();
  readonly faults: Fault[] = [];
  readonly restores: Restore[] = [];
  readonly pauses: Pause[] = [];
  readonly incidents: Incident[] = [];
  /** How each run ended when that was first read. */
  readonly terminal = new Map<string, TerminalState>();
  readonly #awaited = new Map<Fault, Set<Work>>();

  newOperation(slug: string, scenario: string, idempotencyKey?: string): Operation {
    const id = this.operations.length + 1;
    const operation: Operation = {
      id,
      slug,
      scenario,
      payload: JSON.stringify({ operation: id }),
      requests: [],
      ...(idempotencyKey !== undefined && { idempotencyKey }),
    };
    this.operations.push(operation);
    return operation;
  }

  newRequest(operation: Operation, api: string): SentRequest {
    const id = `chaos-${operation.id}-${operation.requests.length + 1}`;
    const request: SentRequest = { id, api, sentAt: Date.now() };
    operation.requests.push(request);
    this.operationOfRequest.set(id, operation);
    return request;
  }

  answered(request: SentRequest, answer: Answer): void {
    request.answeredAt = Date.now();
    request.answer = answer;
    if (answer.kind === 'accepted' && !answer.isReplay) this.#works('accepting', request.api);
  }

  eventReceived(runId: string, id: string): void {
    this.eventsReceived += 1;
    this.events.set(runId, (this.events.get(runId) ?? new Set()).add(id));
  }

  attemptStarted(runId: string, worker: string): void {
    const records = this.attempts.get(runId) ?? [];
    records.push({ runId, worker, startedAt: Date.now() });
    this.attempts.set(runId, records);
    this.#works('executing', worker);
  }

  attemptEnded(runId: string, worker: string, isLockLost: boolean): void {
    const record = this.attempts.get(runId)?.findLast((each) => each.worker === worker);
    if (!record) return;
    record.endedAt = Date.now();
    if (isLockLost) record.isLockLost = true;
  }

  /** @param parts the processes hit, each with its incarnation; none when all are */
  faultStarted(kind: FaultKind, scenario: string, parts: string[] = []): Fault {
    const fault: Fault = { kind, scenario, parts, startedAt: Date.now(), recoveryMs: {} };
    this.faults.push(fault);
    // What was still waited for on the same processes will take longer for another reason now.
    for (const other of this.#awaited.keys()) {
      const isHit =
        parts.length === 0 || other.parts.some((part) => parts.some((each) => isSame(each, part)));
      if (isHit) this.#awaited.delete(other);
    }
    return fault;
  }

  faultEnded(fault: Fault, awaited: Work[]): void {
    fault.endedAt = Date.now();
    if (awaited.length > 0) this.#awaited.set(fault, new Set(awaited));
  }

  /**
   * Whether a restore may have undone something of a run, or all of it.
   *
   * @param endedAt missing when the run is gone
   */
  isUndone(runId: string, endedAt: number | undefined): boolean {
    const acceptedAt = acceptedAtOf(runId).getTime();
    return this.restores.some(
      ({ takenAt, restoredAt }) => acceptedAt < restoredAt && (endedAt ?? acceptedAt) > takenAt - WRITTEN_MS,
    );
  }

  /** Whether a restore has undone a run's end. */
  isEndUndone(endedAt = Number.NaN): boolean {
    return this.restores.some(
      ({ takenAt, restoredAt }) => endedAt > takenAt - WRITTEN_MS && endedAt <= restoredAt,
    );
  }

  /** Faults from which the service, or the process that was hit, has not recovered. */
  unrecovered(): { fault: Fault; work: Work[] }[] {
    return [...this.#awaited].map(([fault, work]) => ({ fault, work: [...work] }));
  }

  #works(work: Work, part: string): void {
    for (const [fault, awaited] of this.#awaited) {
      const isHit = fault.parts.length === 0 || fault.parts.some((each) => isSame(each, part));
      if (!isHit || !awaited.delete(work)) continue;
      fault.recoveryMs[work] = Date.now() - (fault.endedAt ?? Number.NaN);
      if (awaited.size === 0) this.#awaited.delete(fault);
    }
  }
}

/** Whether two incarnations, such as `worker-2#1` and `worker-2#5`, are of the same process. */
function isSame(left: string, right: string): boolean {
  return left.split('#')[0] === right.split('#')[0];
}

/** The run that an operation was promised, if it was. */
export function promisedRun(operation: Operation): string | undefined {
  for (const { answer } of operation.requests) if (answer?.kind === 'accepted') return answer.runId;
  return undefined;
}
