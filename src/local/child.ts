import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

/** The IPC message of an orc process that is ready for work. */
export const READY = 'ready';

/** One log line of a child. */
export type LogRecord = { level: string; msg: string } & Record<string, unknown>;

/**
 * What Node is started with for `orc api`, `orc worker` and `orc console`: here, in the image and by systemd. V8 collects new
 * objects when there are 8 MB of them, and keeps that much room for them also at rest. Maglev, a compiler that Node 20 and 22 do
 * not use, makes no request faster. What each flag is worth: docs/performance.md, "What Node is told of memory".
 */
export const NODE_FLAGS: readonly string[] = [
  '--min-semi-space-size=8',
  '--max-semi-space-size=8',
  '--no-maglev',
];

export interface OrcChild {
  /** Resolves when the child is ready for work; rejects with its last output when it ends before that. */
  ready: Promise<void>;
  /** Resolves with a sentence when the child has ended. */
  ended: Promise<string>;
  /** Sends SIGTERM and waits for the end. Idempotent. */
  stop(): Promise<void>;
}

/**
 * Starts `orc api`, `orc worker` or `orc console`. The child has its own process group: Ctrl-C in a terminal reaches only its parent, which
 * shuts its children down in order. The child ends by itself when its parent is gone.
 *
 * @param onRecord is called with each line of the child's log
 */
export function startOrcChild(
  name: 'api' | 'worker' | 'console',
  env: NodeJS.ProcessEnv,
  onRecord: (record: LogRecord) => void,
): OrcChild {
  const script = process.argv[1] ?? '';
  const child = spawn(process.execPath, [...NODE_FLAGS, script, name], {
    env,
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
  });
  let lastOutput = '';
  for (const stream of [child.stdout, child.stderr]) {
    if (!stream) continue;
    createInterface({ input: stream }).on('line', (line) => {
      const record = parseRecord(line);
      if (record) onRecord(record);
      else lastOutput = line.replace(/^orc: /, '');
    });
  }
  const ended = new Promise<string>((resolve) => {
    child.once('error', (error) => resolve(`The ${name} process could not be started: ${error.message}`));
    child.once('close', (code, signal) => {
      const how = signal === null ? `ended with exit code ${code}` : `was ended by ${signal}`;
      resolve(`The ${name} process ${how}.${lastOutput && ` Its last output: ${lastOutput}`}`);
    });
  });
  const ready = new Promise<void>((resolve, reject) => {
    child.on('message', (message) => {
      if (message === READY) resolve();
    });
    void ended.then((how) => reject(new Error(how)));
  });
  // A caller that does not wait for `ready` learns of the end from `ended`.
  ready.catch(() => undefined);
  const stop = async () => {
    if (child.exitCode === null && child.signalCode === null) child.kill('SIGTERM');
    await ended;
  };
  return { ready, ended, stop };
}

function parseRecord(line: string): LogRecord | undefined {
  if (!line.startsWith('{')) return undefined;
  try {
    return JSON.parse(line) as LogRecord;
  } catch {
    return undefined;
  }
}
