import { createInterface } from 'node:readline';
import { setTimeout } from 'node:timers/promises';
import { LEASE_CHECK_MS } from '../lease.ts';
import { removeFolder } from '../remove-folder.ts';
import { killMarked, type RunMark, signalGroup, signalMarked } from '../run-processes.ts';

// The guard: a process beside each worker process, which ends the worker's commands when the worker cannot. It is told
// about them over standard input, a line each; see `guard.ts`. It ends when the worker has ended and nothing that its
// commands started is left.

/** A worker that has not ended a run this long after its lease is frozen, in milliseconds. */
const SLACK_MS = 2000;

/** Between the TERM and the KILL of a frozen worker's commands, in milliseconds. */
const FROZEN_GRACE_MS = 1000;

/** Pause before a search for what ended commands left outside of their groups, in milliseconds. */
const SWEEP_MS = 500;

interface GuardedAttempt {
  mark: RunMark;
  leaseEndsAt: number;
  /** Unknown until the command is started. */
  group?: number;
  isEnding?: boolean;
}

const [, , workerId = ''] = process.argv;
const attempts = new Map<string, GuardedAttempt>();
const folders: string[] = [];
let ended: RunMark[] = [];
let checkedAt = Date.now();

// A signal to everything around the worker, as in a container, must not end the guard first.
for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, () => undefined);
// The worker starts no command before; it may be gone by now.
process.stdout.on('error', () => undefined);
process.stdout.write('ready\n');

const leaseCheck = setInterval(endOverdue, LEASE_CHECK_MS);
createInterface({ input: process.stdin })
  .on('line', receive)
  .on('close', () => {
    clearInterval(leaseCheck);
    void endAll();
  });

/** `lease RUN ATTEMPT END`, `group RUN ATTEMPT GROUP`, `end RUN ATTEMPT`, or `folder PATH` with the path percent-encoded. */
function receive(line: string): void {
  const [what, runId = '', attempt = '', value] = line.split(' ');
  if (what === 'folder') {
    folders.push(decodeURIComponent(runId));
    return;
  }
  const id = `${runId} ${attempt}`;
  const mark = { ORC_WORKER: workerId, ORC_RUN_ID: runId, ORC_ATTEMPT: attempt };
  const guarded = attempts.get(id) ?? { mark, leaseEndsAt: 0 };
  if (what === 'end') {
    attempts.delete(id);
    if (ended.push(mark) === 1) void sweepSoon();
    return;
  }
  attempts.set(id, guarded);
  if (what === 'lease') guarded.leaseEndsAt = Number(value);
  else Object.assign(guarded, { group: Number(value), isEnding: false });
}

/** Ends what a command that has ended left behind outside of its group. */
async function sweepSoon(): Promise<void> {
  await setTimeout(SWEEP_MS, undefined, { ref: false });
  const marks = ended;
  ended = [];
  await killMarked(marks);
}

function endOverdue(): void {
  const now = Date.now();
  // A guard that was itself frozen has not read the latest leases yet.
  const wasFrozen = now - checkedAt > SLACK_MS;
  checkedAt = now;
  if (wasFrozen) return;
  for (const guarded of attempts.values()) {
    if (guarded.isEnding || now < guarded.leaseEndsAt + SLACK_MS) continue;
    guarded.isEnding = true;
    void endFrozen(guarded);
  }
}

async function endFrozen({ mark, group }: GuardedAttempt): Promise<void> {
  if (group !== undefined) signalGroup(group, 'SIGTERM');
  await signalMarked([mark], 'SIGTERM', group);
  await setTimeout(FROZEN_GRACE_MS);
  if (group !== undefined) signalGroup(group, 'SIGKILL');
  await killMarked([mark]);
}

/** The worker has ended, in order or not: nothing that its commands started may be left, nor their payloads. */
async function endAll(): Promise<void> {
  for (const { group } of attempts.values()) {
    if (group !== undefined) signalGroup(group, 'SIGKILL');
  }
  await killMarked([{ ORC_WORKER: workerId }]);
  for (const folder of folders) await removeFolder(folder).catch(() => undefined);
}
