import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';

export interface HttpRequest {
  url: string;
  method: 'GET' | 'POST';
  headers: Record<string, string>;
  body?: string;
  /** Puts an id of its own into each request, wherever a header has `[<id>]`. */
  hasIds?: boolean;
}

/** What the load generator is asked for. */
export interface Load {
  request: HttpRequest;
  connections: number;
  /** How long requests are sent. */
  seconds: number;
  /** Requests a second of an open model; without it a closed loop: each connection sends when it was answered. */
  rate?: number;
  /** Processes whose CPU time is measured. */
  watched: number[];
}

/** What came of it. Times are in milliseconds, CPU times in microseconds. */
export interface Sample {
  /** Answers within `seconds`. */
  answered: number;
  seconds: number;
  /** How many answers there were of each status. */
  statuses: Record<string, number>;
  /** Connections that broke, and requests without an answer. */
  failures: number;
  latency: { p50: number; p99: number; p999: number };
  /** Of the watched processes and the children that they waited for. */
  cpuUs: number[];
  /** Of the load generator itself. */
  clientCpuUs: number;
  /** Of everything else on the machine: who disturbs the measurement. */
  otherCpuUs: number;
  /** Open model only: the 99th percentile of the time between the intended start of a request and its being sent. */
  lateP99?: number;
}

const PROCESS = fileURLToPath(new URL('./http-load-process.js', import.meta.url));

/** Sends requests from a process of its own, so that its work is the same whoever is asked, and is nobody else's. */
export class LoadGenerator {
  readonly #child: ChildProcess;

  constructor() {
    this.#child = fork(PROCESS);
  }

  /** @throws when the process fails */
  async run(load: Load): Promise<Sample> {
    const ending = new AbortController();
    const answer = once(this.#child, 'message', ending);
    const end = once(this.#child, 'exit', ending);
    answer.catch(() => undefined);
    end.catch(() => undefined);
    this.#child.send(load);
    const result = await Promise.race([answer, end.then(() => undefined)]);
    ending.abort();
    if (!result) throw new Error('The load generator has ended.');
    const [message] = result as [Sample | { error: string }];
    if ('error' in message) throw new Error(message.error);
    return message;
  }

  async stop(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const exited = once(this.#child, 'exit');
    this.#child.kill();
    await exited;
  }
}
