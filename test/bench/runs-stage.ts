import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { sessionCookie } from '../../src/console/session.ts';
import type { Action } from '../../src/core/actions/actions.ts';
import { freePort } from '../../src/local/free-port.ts';
import { startRedisServer } from '../../src/local/redis-server.ts';
import type { TriggeredAutomation } from '../../src/store/automations.ts';
import { connect } from '../../src/store/connect.ts';
import { newRunId } from '../../src/store/run-id.ts';
import { createStore, type Store } from '../../src/store/store.ts';
import type { BenchContext } from './part.ts';
import { type BenchProcess, launchOrc } from './runs-process.ts';

const PREFIX = 'orc';

/** What every run of the benchmark is given: 100 bytes. */
export const PAYLOAD = JSON.stringify({ text: 'x'.repeat(89) });

/** Runs that are accepted at the same time when a queue is filled. */
const PARALLEL = 200;

const POLL_MS = 20;

/** How long Redis may take to accept a run, in milliseconds. */
const ACCEPT_MS = 60_000;

/** How long the operator of a console stays logged in, in milliseconds. */
const SESSION_MS = 3_600_000;

/** More than any part lets wait or keeps. */
const UNLIMITED = '100000000';

/** An automation that can be triggered. */
export interface Target {
  slug: string;
  apiKey: string;
  automation: TriggeredAutomation;
}

export interface Api extends BenchProcess {
  url: string;
}

/** The console, and what an operator's browser sends it. */
export interface Console extends BenchProcess {
  url: string;
  headers: Record<string, string>;
}

/** A Redis of one's own that acknowledges nothing before it is on disk, and the processes of orc that work with it. */
export class Stage {
  readonly redisUrl: string;
  readonly redisPid: number;
  readonly store: Store;
  readonly #context: BenchContext;

  private constructor(context: BenchContext, redisUrl: string, redisPid: number) {
    this.#context = context;
    this.redisUrl = redisUrl;
    this.redisPid = redisPid;
    this.store = createStore(
      connect(redisUrl, 'patient', () => undefined),
      PREFIX,
      () => undefined,
    );
  }

  /** @param name of its directory */
  static async open(context: BenchContext, name: string): Promise<Stage> {
    const redis = await startRedisServer({
      server: context.redisServer,
      dataDir: join(context.directory, name),
      persistence: 'always',
      listen: { port: 0 },
    });
    context.defer(() => redis.stop());
    const stage = new Stage(context, redis.url, redis.pid);
    context.defer(() => stage.store.close());
    return stage;
  }

  /** Forgets everything. No process of orc may be at work. */
  async clear(): Promise<void> {
    await this.store.redis.flushall();
  }

  async createAutomation(
    slug: string,
    action: Action,
    options: { concurrency?: number; timeoutMs?: number; onEnd?: string } = {},
  ): Promise<Target> {
    const definition = { slug, name: '', enabled: true, action, attempts: 1, onWorkerLoss: 'rerun' } as const;
    const created = await this.store.automations.create({ ...definition, ...options });
    if (created.status === 'exists') throw new Error(`${slug} exists`);
    const opened = await this.store.automations.open(slug);
    if (opened.status !== 'authenticated') throw new Error(`${slug} is ${opened.status}`);
    return { slug, apiKey: created.apiKey, automation: opened.automation };
  }

  /** Accepts runs as the API does, without HTTP. @returns their ids */
  async accept({ automation }: Target, count: number): Promise<string[]> {
    const runIds = Array.from({ length: count }, newRunId);
    let next = 0;
    const acceptNext = async () => {
      for (let id = runIds[next++]; id !== undefined; id = runIds[next++]) {
        const limits = { endsAt: Date.now() + ACCEPT_MS, maxQueuedRuns: Number.MAX_SAFE_INTEGER };
        const run = { id, payload: PAYLOAD, requestId: 'bench' };
        const { status } = await this.store.runs.accept(automation, run, limits);
        if (status !== 'accepted') throw new Error(`a run was ${status}`);
      }
    };
    await Promise.all(Array.from({ length: Math.min(PARALLEL, count) }, acceptNext));
    return runIds;
  }

  async startApi(): Promise<Api> {
    const port = await freePort();
    const started = await this.#start('api', port);
    return { ...started, url: `http://127.0.0.1:${port}` };
  }

  /** On which every page can be asked for with the cookie, that of an admin. */
  async startConsole(): Promise<Console> {
    const { operators } = this.store;
    await operators.add('bench', 'admin');
    const link = await operators.createLink('bench');
    const session = await operators.login(link?.token ?? '', { address: '127.0.0.1', userAgent: 'bench' });
    const port = await freePort();
    const started = await this.#start('console', port);
    const url = `http://127.0.0.1:${port}`;
    const [cookie = ''] = sessionCookie(url, session?.token ?? '', SESSION_MS).split(';');
    // It listens before it has reached Redis.
    await until(async () => (await fetch(url, { headers: { cookie } })).ok);
    return { ...started, url, headers: { cookie } };
  }

  startWorker(): Promise<BenchProcess> {
    return this.#start('worker', 0);
  }

  async #start(kind: 'api' | 'worker' | 'console', port: number): Promise<BenchProcess> {
    const { process: started, firstMessage } = launchOrc(kind, this.environment(port));
    this.#context.defer(() => started.stop());
    await firstMessage;
    return started;
  }

  /** That of the processes of orc: the defaults, but nothing is refused or removed because there is much of it. */
  environment(port: number): NodeJS.ProcessEnv {
    const { PATH, HOME } = process.env;
    return {
      PATH,
      HOME,
      TMPDIR: this.#context.directory,
      REDIS_URL: this.redisUrl,
      REDIS_PREFIX: PREFIX,
      PORT: String(port),
      CONSOLE_PORT: String(port),
      CONSOLE_URL: `http://127.0.0.1:${port}`,
      MAX_QUEUED_RUNS: UNLIMITED,
      RUN_RETENTION_COUNT: UNLIMITED,
      SHUTDOWN_GRACE_MS: '1000',
    };
  }

  /** How many runs have succeeded and are kept. */
  countSucceeded(): Promise<number> {
    return this.store.redis.zcard(`${this.store.keys.queuePrefix}:runs:completed`);
  }
}

/** Asks again and again until the answer is yes. */
export async function until(condition: () => Promise<boolean>): Promise<void> {
  while (!(await condition())) await sleep(POLL_MS);
}
