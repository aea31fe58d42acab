import { createHash, randomUUID } from 'node:crypto';
import { mkdtempSync, readFileSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect } from 'vitest';
import type { Action } from '../../src/core/actions/actions.ts';
import type { CommandAction } from '../../src/core/actions/command.ts';
import type { AutomationDefinition } from '../../src/core/automation.ts';
import type { AttemptResult, RunAttempt } from '../../src/core/run.ts';
import type { RunLogEntry, RunLogSource, RunLogStore } from '../../src/store/run-log.ts';
import type { Store } from '../../src/store/store.ts';
import type { ActionContext } from '../../src/worker/actions/action.ts';
import { openCommands } from '../../src/worker/actions/command.ts';
import { AttemptArtifacts } from '../../src/worker/attempt-artifacts.ts';
import type { Guard } from '../../src/worker/guard/guard.ts';
import { OutputLog } from '../../src/worker/output-log.ts';
import { SecretMask } from '../../src/worker/secret-mask.ts';
import { settleAttempt } from '../../src/worker/settle-attempt.ts';
import { openWorkFolders } from '../../src/worker/work-folders.ts';
import { acceptRun, createTriggered } from '../support/runs.ts';
import { command, openTestStore } from '../support/store.ts';

/** Everything that a lenient parser, a merge or a re-serialisation would change, and 200 KB of it. */
export const HARD_PAYLOAD = Buffer.from(
  `{ "z": 123456789012345678901234567890,\t"a":1.0, "a":2, "__proto__":{"admin":true}, "constructor":null,
  "face":"😀𝒳\\ud83d\\ude00", "line":"\\u2028 ", "pad":"${'ü'.repeat(100_000)}"}\n`,
);

export function sha256(data: Buffer | string): string {
  return createHash('sha256').update(data).digest('hex');
}

/** A guard that does nothing: what it does is tested with worker processes. */
export const NO_GUARD: Guard = {
  workerId: 'worker-7',
  ready: Promise.resolve(),
  removeAtEnd: () => undefined,
  watch: () => ({ leads: () => undefined, end: () => undefined }),
  close: async () => undefined,
};

/** Hides nothing. */
export const NO_MASK = new SecretMask([]);

/** A lease that does not end. */
export const FOR_EVER = { endsAt: Number.POSITIVE_INFINITY };

/** What a test waits for: for so long that only a real failure, and not a busy machine, lets the wait end. */
export function eventually<T>(get: () => T) {
  return expect.poll(get, { timeout: 40_000, interval: 20 });
}

/** The folder of one test file, removed after its tests. */
export function openFolder(): (name: string) => string {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'orc-test-')));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  return (name) => join(folder, name);
}

/** A first attempt at a run that nobody else knows of. */
export function newAttempt(changes: Partial<RunAttempt> = {}): RunAttempt {
  return {
    id: `run_${randomUUID()}`,
    automation: 'job',
    automationId: randomUUID(),
    attempt: 1,
    isLast: true,
    acceptedAt: new Date('2026-01-02T03:04:05.678Z'),
    requestId: 'request-1',
    payload: Buffer.from('{}'),
    workersLost: 0,
    ...changes,
  };
}

/** Creates an automation and accepts runs of it as the API does, one for each payload. */
export async function acceptRuns(
  store: Store,
  slug: string,
  changes: Partial<AutomationDefinition> = {},
  payloads = ['{}'],
): Promise<string[]> {
  const automation = await createTriggered(store, slug, changes);
  const runIds: string[] = [];
  for (const payload of payloads) runIds.push(await acceptRun(store, automation, payload));
  return runIds;
}

/** A command that prints its pid, and ends when the file exists. */
export function waitFor(file: string): Action {
  return command('sh', '-c', 'echo $$; while [ ! -e "$1" ]; do sleep 0.05; done; echo done', 'sh', file);
}

export interface RunLog {
  entries: RunLogEntry[];
  stdout: string;
  stderr: string;
  /** The lines of orc itself. */
  notes: string;
}

/** What is stored of a run's log by now. */
export async function readLog({ runLogs }: Pick<Store, 'runLogs'>, runId: string): Promise<RunLog> {
  const entries: RunLogEntry[] = [];
  let position: string | undefined;
  for (;;) {
    const batch = await runLogs.read(runId, position);
    if (batch.entries.length === 0) break;
    entries.push(...batch.entries);
    position = batch.position;
  }
  const text = (source: RunLogSource) => bytesOf(entries, source).toString();
  return { entries, stdout: text('stdout'), stderr: text('stderr'), notes: text('orc') };
}

export function bytesOf(entries: RunLogEntry[], source: RunLogSource): Buffer {
  return Buffer.concat(entries.filter((entry) => entry.source === source).map(({ data }) => data));
}

/** Of the artifacts of an attempt. */
const ARTIFACT_LIMIT_BYTES = 1000;

export interface AttemptOptions {
  run?: Partial<RunAttempt>;
  timeoutMs?: number;
  signal?: AbortSignal;
  /** The worker's environment. */
  env?: NodeJS.ProcessEnv;
  runLogs?: RunLogStore;
  guard?: Guard;
}

/** Executes actions as a worker does, without a queue, and reads what they left in the log. */
export function openWorkbench() {
  const store = openTestStore();
  const workFolders = openWorkFolders(() => undefined);
  afterAll(() => workFolders.close());

  async function attempt(
    act: (context: ActionContext) => Promise<AttemptResult | 'interrupted'>,
    options: AttemptOptions = {},
  ) {
    const run = newAttempt(options.run);
    const log = new OutputLog(options.runLogs ?? store.runLogs, run, 60, NO_MASK);
    const { timeoutMs = 25_000, signal = new AbortController().signal, guard = NO_GUARD } = options;
    const artifacts = new AttemptArtifacts(ARTIFACT_LIMIT_BYTES);
    const context = { run, log, artifacts, timeoutMs, lease: FOR_EVER, guard };
    const result = await settleAttempt((ending) => act({ ...context, ...ending }), timeoutMs, signal);
    await log.flush();
    return { run, result, artifacts, ...(await readLog(store, run.id)) };
  }

  function run(action: Action, options: AttemptOptions = {}) {
    const { PATH, HOME } = process.env;
    const commands = openCommands({ environment: options.env ?? { PATH, HOME }, workFolders });
    return attempt((context) => commands.perform(action as CommandAction, context), options);
  }

  return { store, attempt, run, workFolders };
}

/** Whether there is a process with this id, or what is left of one that its parent has not noticed the end of. */
export function exists(pid: number): boolean {
  requireProcessId(pid);
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

/** Whether a process executes. One that has ended, and only waits for its parent to notice, does not. */
export function isRunning(pid: number): boolean {
  if (!exists(pid)) return false;
  try {
    return !/\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return true;
  }
}

/** To the operating system, 0 means the test run itself. */
function requireProcessId(pid: number): void {
  if (!Number.isInteger(pid) || pid <= 1) throw new Error(`not the id of a process: ${pid}`);
}

/** Ends a process that a test let escape. */
export function endProcess(pid: number): void {
  requireProcessId(pid);
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It has ended already.
  }
}

/** JavaScript that starts `sleep` in a process group of its own, holding the outputs open, and prints its pid. */
export const ESCAPE = `
  const { spawn } = require('node:child_process');
  const escaped = spawn('sleep', ['1000'], { detached: true, stdio: ['ignore', 'inherit', 'inherit'] });
  escaped.unref();
  console.log(escaped.pid);`;
