import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { LogRecord } from '../../src/local/child.ts';
import type { LockTiming } from '../../src/worker/lease.ts';
import { compiled } from './repository.ts';

/** The executable as users get it. `npm test` builds it first. */
export const ORC = fileURLToPath(new URL('../../dist/orc.js', import.meta.url));

const started = new Set<ChildProcess>();

/** Ends the processes that tests left running, and returns their command lines. */
export function endLeftProcesses(): string[] {
  const left = [...started].filter((child) => child.exitCode === null && child.signalCode === null);
  for (const child of left) child.kill('SIGKILL');
  started.clear();
  return left.map((child) => child.spawnargs.join(' '));
}

/** What `orc` gets from the test's environment; anything else is given by the test. */
export function environment(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const { PATH, HOME, XDG_CACHE_HOME, XDG_STATE_HOME } = process.env;
  return { PATH, HOME, XDG_STATE_HOME, ...(XDG_CACHE_HOME && { XDG_CACHE_HOME }), ...env };
}

export interface Finished {
  code: number | null;
  stdout: string;
  stderr: string;
}

/** Runs `orc …` to its end as a process. Where nothing depends on the process, `runOrc` of orc.ts is much faster. */
export async function runOrcProcess(
  args: string[],
  options: { env?: NodeJS.ProcessEnv; cwd?: string } = {},
): Promise<Finished> {
  const child = spawn(process.execPath, [ORC, ...args], {
    cwd: options.cwd,
    env: environment(options.env ?? {}),
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  started.add(child);
  child.stdout.setEncoding('utf8');
  child.stderr.setEncoding('utf8');
  let stdout = '';
  let stderr = '';
  child.stdout.on('data', (data) => {
    stdout += data;
  });
  child.stderr.on('data', (data) => {
    stderr += data;
  });
  const [code] = await once(child, 'close');
  return { code, stdout, stderr };
}

/** A process of orc that stays. */
export interface OrcProcess {
  child: ChildProcess;
  /** Everything it printed so far, line by line. */
  lines: string[];
  /** Resolves with the first line, printed already or later, that contains the text. Rejects when the process ends. */
  line(text: string): Promise<string>;
  /** Resolves with the first log record, written already or later, that satisfies the test. */
  record(test: (record: LogRecord) => boolean): Promise<LogRecord>;
  /** Sends a signal and resolves with the exit code. */
  stop(signal?: NodeJS.Signals): Promise<number | null>;
}

interface StartOptions {
  env?: NodeJS.ProcessEnv;
  cwd?: string;
  /** Another version's executable. */
  program?: string;
  /** Options of Node. */
  nodeOptions?: string[];
}

/** Starts `orc api`, `orc worker` or `orc local`. */
export function startOrc(args: string[], options: StartOptions = {}): OrcProcess {
  return startNode([...(options.nodeOptions ?? []), options.program ?? ORC, ...args], options);
}

/** Starts a process of Node that is a part of orc. */
function startNode(args: string[], options: { env?: NodeJS.ProcessEnv; cwd?: string }): OrcProcess {
  const child = spawn(process.execPath, args, {
    cwd: options.cwd,
    env: environment(options.env ?? {}),
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  started.add(child);
  const lines: string[] = [];
  const waiting = new Set<{
    test(line: string): boolean;
    resolve(line: string): void;
    reject(error: Error): void;
  }>();
  for (const input of [child.stdout, child.stderr]) {
    createInterface({ input }).on('line', (line) => {
      lines.push(line);
      for (const waiter of waiting) {
        if (!waiter.test(line)) continue;
        waiting.delete(waiter);
        waiter.resolve(line);
      }
    });
  }
  const closed = once(child, 'close').then(() => {
    const error = new Error(
      `${args.join(' ')} ended before it printed what was waited for:\n${lines.join('\n')}`,
    );
    for (const { reject } of waiting) reject(error);
  });
  const matching = (test: (line: string) => boolean): Promise<string> => {
    const found = lines.find(test);
    if (found !== undefined) return Promise.resolve(found);
    return new Promise((resolve, reject) => waiting.add({ test, resolve, reject }));
  };
  const parse = (line: string) => (line.startsWith('{') ? (JSON.parse(line) as LogRecord) : undefined);
  return {
    child,
    lines,
    line: (text) => matching((line) => line.includes(text)),
    record: async (test) => {
      const line = await matching((each) => {
        const record = parse(each);
        return record !== undefined && test(record);
      });
      return parse(line) as LogRecord;
    },
    stop: async (signal = 'SIGTERM') => {
      if (child.exitCode === null && child.signalCode === null) child.kill(signal);
      await closed;
      return child.exitCode;
    },
  };
}

/** Starts `orc api` on a free port and waits until it listens. */
export async function startApiProcess(
  env: NodeJS.ProcessEnv,
  program = ORC,
): Promise<OrcProcess & { url: string }> {
  const api = startOrc(['api'], { env: { PORT: '0', ...env }, program });
  const { url } = await api.record(({ msg }) => msg === 'api listens');
  return { ...api, url: String(url) };
}

/** Starts `orc worker` and waits until it takes runs. */
export async function startWorkerProcess(env: NodeJS.ProcessEnv, program = ORC): Promise<OrcProcess> {
  const worker = startOrc(['worker'], { env, program });
  await worker.record(({ msg }) => msg === 'worker takes runs');
  return worker;
}

/** What `orc worker` does, with locks of its own timing. */
const TIMED_WORKER = `
  import { readConfig } from '${compiled('config.js')}';
  import { createLogger } from '${compiled('logger.js')}';
  import { startWorker } from '${compiled('worker/start-worker.js')}';
  const [timing] = process.argv.slice(1);
  const config = readConfig();
  const worker = startWorker(config, config.REDIS_URL, createLogger('info', 'worker'), { timing: JSON.parse(timing) });
  process.once('SIGTERM', () => worker.close(config.SHUTDOWN_GRACE_MS));
  await worker.ready;`;

/** Starts a worker with the timing and waits until it takes runs, so that a test need not wait for half a minute. */
export async function startTimedWorker(env: NodeJS.ProcessEnv, timing: LockTiming): Promise<OrcProcess> {
  const args = ['--input-type=module', '--eval', TIMED_WORKER, '--', JSON.stringify(timing)];
  const worker = startNode(args, { env });
  await worker.record(({ msg }) => msg === 'worker takes runs');
  return worker;
}
