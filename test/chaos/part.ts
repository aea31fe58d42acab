import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { withDeadline } from '../../src/core/deadline.ts';
import { type LogRecord, READY } from '../../src/local/child.ts';

/** The executable as users get it, seen from this file's place in `.chaos/test/chaos`. */
const ORC = fileURLToPath(new URL('../../../dist/orc.js', import.meta.url));

/** After its exit, what a process had printed is read for this long at most, in milliseconds. */
const OUTPUT_MS = 500;

export interface PartOptions {
  /** Such as `worker-2`. */
  name: string;
  kind: 'api' | 'worker';
  env: NodeJS.ProcessEnv;
  /** Is told of each line of its log. */
  onRecord(record: LogRecord, part: Part): void;
  /** Is told when it ends although nobody ended it. */
  onUnexpectedEnd(part: Part, lastLines: string[]): void;
}

/** A process of orc, started anew after each of its deaths. It ends by itself when this process is gone. */
export class Part {
  readonly #options: PartOptions;
  #child: ChildProcess | undefined;
  #isEnding = false;
  #incarnation = 0;

  constructor(options: PartOptions) {
    this.#options = options;
  }

  /** The name and the number of the start, such as `worker-2#5`. */
  get incarnation(): string {
    return `${this.#options.name}#${this.#incarnation}`;
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }

  /** Starts it. Resolves when it is ready, or has ended before it was. */
  async start(): Promise<void> {
    this.#incarnation += 1;
    this.#isEnding = false;
    const { kind, env, onRecord, onUnexpectedEnd } = this.#options;
    // A process group of its own, so that Ctrl-C reaches this process only, which ends the others in order.
    const child = spawn(process.execPath, [ORC, kind], {
      env,
      detached: true,
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    });
    this.#child = child;
    const lastLines: string[] = [];
    for (const input of [child.stdout, child.stderr]) {
      if (!input) continue;
      createInterface({ input }).on('line', (line) => {
        lastLines.push(line);
        if (lastLines.length > 20) lastLines.shift();
        const record = parse(line);
        if (record) onRecord(record, this);
      });
    }
    const ended = once(child, 'exit').then(() => {
      if (!this.#isEnding) onUnexpectedEnd(this, lastLines);
    });
    const ready = new Promise<void>((resolve) => {
      child.on('message', (message) => message === READY && resolve());
    });
    await Promise.race([ready, ended]);
  }

  /** Ends it as a crash would. Resolves when everything it had printed is read. */
  async kill(): Promise<void> {
    await this.#end('SIGKILL');
  }

  /** Ends it in order. */
  async stop(): Promise<void> {
    await this.#end('SIGTERM');
  }

  /** Lets a worker end with its last run. @returns whether it has ended as it should, within `deadlineMs` */
  async drain(deadlineMs: number): Promise<boolean> {
    const isDone = await withDeadline(this.#end('SIGUSR2'), deadlineMs).then(
      () => true,
      () => false,
    );
    return isDone && this.#child?.exitCode === 0;
  }

  freeze(): void {
    this.#child?.kill('SIGSTOP');
  }

  thaw(): void {
    this.#child?.kill('SIGCONT');
  }

  /** Ends it at once, when there is no time left to wait for anything. */
  abandon(): void {
    this.#isEnding = true;
    this.#child?.kill('SIGKILL');
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    this.#isEnding = true;
    const child = this.#child;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const closed = once(child, 'close');
    const exited = once(child, 'exit');
    child.kill(signal);
    await exited;
    // What it started can hold its outputs open.
    await withDeadline(closed, OUTPUT_MS).catch(() => undefined);
  }
}

/** The last line of a process that was killed may be half of one. */
function parse(line: string): LogRecord | undefined {
  if (!line.startsWith('{') || !line.endsWith('}')) return undefined;
  return JSON.parse(line) as LogRecord;
}
