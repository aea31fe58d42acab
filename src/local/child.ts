import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

/** Sent over the IPC channel by a process of orc that is ready for work. */
export const READY = 'ready';

/** One line of a child's log. */
export type LogRecord = { level: string; msg: string } & Record<string, unknown>;

/**
 * What Node is started with for `orc api` and `orc worker`: here, in the image and by systemd. V8 collects new objects when
 * there are 8 MB of them; by its own limit an API under load takes 16 MB more, or 80 with Node 24.
 */
export const NODE_FLAGS: readonly string[] = ['--max-semi-space-size=8'];

export interface OrcChild {
  /** Resolves when the child is ready for work; rejects, with its last words, when it ends before that. */
  ready: Promise<void>;
  /** Resolves with a sentence when the child has ended, for whatever reason. */
  ended: Promise<string>;
  /** Asks it to end and waits until it has. Idempotent. */
  stop(): Promise<void>;
}

/**
 * Starts a process of orc: `orc api` or `orc worker`. It has a process group of its own, so that Ctrl-C in a terminal
 * reaches its parent only, which then ends its children in order; and it ends by itself when its parent is gone.
 *
 * @param onRecord is told of each line of the child's log
 */
export function startOrcChild(
  name: 'api' | 'worker',
  env: NodeJS.ProcessEnv,
  onRecord: (record: LogRecord) => void,
): OrcChild {
  const script = process.argv[1] ?? '';
  const child = spawn(process.execPath, [...NODE_FLAGS, script, name], {
    env,
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
  });
  let lastWords = '';
  for (const stream of [child.stdout, child.stderr]) {
    if (!stream) continue;
    createInterface({ input: stream }).on('line', (line) => {
      const record = parseRecord(line);
      if (record) onRecord(record);
      else lastWords = line.replace(/^orc: /, '');
    });
  }
  const ended = new Promise<string>((resolve) => {
    child.once('error', (error) => resolve(`The ${name} process could not be started: ${error.message}`));
    child.once('close', (code, signal) => {
      const how = signal === null ? `ended with exit code ${code}` : `was ended by ${signal}`;
      resolve(`The ${name} process ${how}.${lastWords && ` Its last words: ${lastWords}`}`);
    });
  });
  const ready = new Promise<void>((resolve, reject) => {
    child.on('message', (message) => {
      if (message === READY) resolve();
    });
    void ended.then((how) => reject(new Error(how)));
  });
  // Whoever does not wait for it to be ready hears of its end by `ended`.
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
