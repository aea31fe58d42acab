import { mkdirSync, readFileSync, rmSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { isTerminal, type Run } from '../../src/core/run.ts';
import type { LogRecord } from '../../src/local/child.ts';
import { findRedisServer } from '../../src/local/find-redis-server.ts';
import { connect } from '../../src/store/connect.ts';
import { createStore, type Store } from '../../src/store/store.ts';
import { LogJudge } from '../support/log-judge.ts';
import { createAutomations, type TriggeredAutomation } from './automations.ts';
import { Chance } from './chance.ts';
import { type Api, Clients } from './clients.ts';
import { History, type Mark } from './history.ts';
import { endProcessesNaming } from './leftovers.ts';
import { Observer } from './observer.ts';
import { Part } from './part.ts';
import { Receiver } from './receiver.ts';
import { BreakableRedis } from './redis.ts';
import { RedisProxy } from './redis-proxy.ts';

const PREFIX = 'chaos';
const APIS = 2;
const WORKERS = 3;
const START_DEADLINE_MS = 30_000;

/** Runs read at the same time at the end. */
const PARALLEL = 64;

export interface ApiPart extends Api {
  part: Part;
}

/**
 * A whole installation of real processes: Redis, API processes, workers. The first of each kind reaches Redis through
 * a proxy, the others directly.
 */
export class Stage {
  readonly history = new History();
  readonly directory: string;
  readonly redis: BreakableRedis;
  readonly apis: ApiPart[] = [];
  readonly workers: Part[] = [];
  /** What operations and faults are booked under. */
  scenario = 'start';
  readonly #closers: (() => Promise<unknown>)[] = [];
  #proxies: { api: RedisProxy; worker: RedisProxy } | undefined;
  #store: Store | undefined;
  #observer: Observer | undefined;
  #clients: Clients | undefined;
  #automations: ReadonlyMap<string, TriggeredAutomation> = new Map();
  #closing: Promise<void> | undefined;
  #isClosing = false;
  /** Of each start of an API process. */
  readonly #logs = new Map<string, LogJudge>();

  private constructor(directory: string, redis: BreakableRedis) {
    this.directory = directory;
    this.redis = redis;
  }

  /** Builds it; call {@link open} next. Nothing runs yet. */
  static async create(): Promise<Stage> {
    const report = (message: string) => console.error(message);
    const server = await findRedisServer({ env: process.env, report });
    const directory = await mkdtemp(join(tmpdir(), 'orc-chaos-'));
    return new Stage(directory, new BreakableRedis(server, join(directory, 'redis')));
  }

  /** @param rate operations a second */
  async open(seed: number, rate: number): Promise<void> {
    mkdirSync(join(this.directory, 'tmp'));
    this.#closers.push(() => this.redis.stop());
    await this.redis.start();
    const proxies = {
      api: await RedisProxy.listen(this.redis.port),
      worker: await RedisProxy.listen(this.redis.port),
    };
    this.#proxies = proxies;
    this.#closers.push(() => Promise.all([proxies.api.close(), proxies.worker.close()]));

    const connection = connect(this.redis.url, 'fail-fast', () => undefined);
    const store = createStore(connection, PREFIX, () => undefined);
    this.#store = store;
    this.#closers.push(() => store.close());
    await this.connected();
    const receiver = await Receiver.listen(this.history, new Chance(seed + 1));
    this.#closers.push(() => receiver.close());
    this.#automations = await createAutomations(store, receiver, this.marksFile);

    this.#closers.push(() => this.#endParts());
    await this.#startParts(proxies);
    const observer = new Observer(store, this.history, new Chance(seed + 2));
    this.#observer = observer;
    this.#closers.push(() => observer.close());
    this.#clients = new Clients({
      history: this.history,
      observer,
      chance: new Chance(seed + 3),
      automations: this.#automations,
      apis: this.apis,
      rate,
      scenario: () => this.scenario,
    });
    observer.start();
    this.#clients.start();
  }

  get marksFile(): string {
    return join(this.directory, 'marks');
  }

  get automations(): ReadonlyMap<string, TriggeredAutomation> {
    return this.#automations;
  }

  get proxies(): { api: RedisProxy; worker: RedisProxy } {
    return opened(this.#proxies);
  }

  get store(): Store {
    return opened(this.#store);
  }

  /** Waits until this process itself has a connection, which it loses like everybody else. */
  async connected(): Promise<void> {
    await until(() => this.store.redis.status === 'ready', 'Redis does not answer');
  }

  get observer(): Observer {
    return opened(this.#observer);
  }

  get clients(): Clients {
    return opened(this.#clients);
  }

  /** What commands have noted so far. */
  commandMarks(): Mark[] {
    const marks: Mark[] = [];
    for (const line of readFileSync(this.marksFile, { encoding: 'utf8', flag: 'a+' }).split('\n')) {
      const [slug, runId, execution, sign] = line.split(' ');
      if (slug && runId && execution && (sign === 'start' || sign === 'tick' || sign === 'end')) {
        marks.push({ slug, runId, execution, sign });
      }
    }
    return marks;
  }

  /** Reads all runs again and again until all have ended, or the time is over. */
  async finalRuns(deadline: number): Promise<Map<string, Run>> {
    for (;;) {
      const runs = await this.#readRuns();
      const hasOpen = [...runs.values()].some(({ status }) => !isTerminal(status));
      if (!hasOpen || Date.now() > deadline) return runs;
      await sleep(500);
    }
  }

  async #readRuns(): Promise<Map<string, Run>> {
    const { redis, keys, runs: queue } = this.store;
    const runs = new Map<string, Run>();
    const readAt = performance.now();
    const prefix = `${keys.queuePrefix}:runs:`;
    let cursor = '0';
    do {
      const [next, found] = await redis.scan(cursor, 'MATCH', `${prefix}run_*`, 'COUNT', 1000);
      cursor = next;
      const runIds = found
        .map((key) => key.slice(prefix.length))
        .filter((id) => !id.includes(':') && !runs.has(id));
      for (let start = 0; start < runIds.length; start += PARALLEL) {
        const read = await Promise.all(runIds.slice(start, start + PARALLEL).map((id) => queue.get(id)));
        for (const run of read) if (run) runs.set(run.id, run);
      }
    } while (cursor !== '0');
    for (const run of runs.values()) this.observer.note(run, readAt);
    return runs;
  }

  /** Ends everything and leaves nothing behind. Idempotent. */
  close(): Promise<void> {
    this.#closing ??= (async () => {
      this.#isClosing = true;
      await this.#clients?.close();
      for (const closer of this.#closers.reverse()) {
        await closer().catch((error) => console.error(error));
      }
      await endProcessesNaming(this.directory);
      rmSync(this.directory, { recursive: true, force: true });
    })();
    return this.#closing;
  }

  /** The same at once, for when this process ends before {@link close} is done. */
  abandon(): void {
    for (const { part } of this.apis) part.abandon();
    for (const worker of this.workers) worker.abandon();
    this.redis.abandon();
    rmSync(this.directory, { recursive: true, force: true });
  }

  async #startParts(proxies: { api: RedisProxy; worker: RedisProxy }): Promise<void> {
    const { PATH, HOME } = process.env;
    const env = { PATH, HOME, REDIS_PREFIX: PREFIX, TMPDIR: join(this.directory, 'tmp') };
    const onUnexpectedEnd = (part: Part, lines: string[]) => {
      if (this.#isClosing) return;
      const message = `${part.incarnation} ended by itself:\n${lines.join('\n')}`;
      this.history.incidents.push({ kind: 'process ended', message });
    };
    for (let number = 1; number <= APIS; number += 1) {
      const url = number === 1 ? proxies.api.url : this.redis.url;
      const name = `api-${number}`;
      const part = new Part({
        name,
        kind: 'api',
        env: { ...env, PORT: '0', LOG_LEVEL: 'info', REDIS_URL: url },
        onRecord: (record, { incarnation }) => {
          if (record.msg === 'api listens') api.url = String(record['url']);
          this.#judgeLog(record, incarnation);
        },
        onUnexpectedEnd,
      });
      const api: ApiPart = { name, url: '', part };
      this.apis.push(api);
    }
    for (let number = 1; number <= WORKERS; number += 1) {
      const url = number === 1 ? proxies.worker.url : this.redis.url;
      this.workers.push(
        new Part({
          name: `worker-${number}`,
          kind: 'worker',
          // Every run is kept, so that one which is gone is lost.
          env: { ...env, REDIS_URL: url, RUN_RETENTION_COUNT: '100000000' },
          onRecord: ({ msg, runId, reason }, { incarnation }) => {
            if (msg === 'run started') this.history.attemptStarted(String(runId), incarnation);
            if (msg === 'run ended') this.history.attemptEnded(String(runId), incarnation, false);
            if (msg === 'run interrupted') {
              this.history.attemptEnded(String(runId), incarnation, reason === 'lock lost');
            }
          },
          onUnexpectedEnd,
        }),
      );
    }
    await Promise.all([...this.apis.map(({ part }) => part), ...this.workers].map((part) => part.start()));
    // A process is ready before the line of its log that says where it listens is read.
    await until(() => this.apis.every(({ url }) => url !== ''), 'the API processes do not listen');
  }

  #judgeLog(record: LogRecord, incarnation: string): void {
    const judge = this.#logs.get(incarnation) ?? new LogJudge(1);
    this.#logs.set(incarnation, judge);
    const known = judge.problem;
    judge.take(record);
    if (judge.problem === known) return;
    this.history.incidents.push({ kind: 'wrong log', message: `${incarnation}: ${judge.problem}` });
  }

  async #endParts(): Promise<void> {
    const parts = [...this.apis.map(({ part }) => part), ...this.workers];
    for (const part of parts) part.thaw();
    await Promise.all(parts.map((part) => part.kill()));
  }
}

function opened<T>(part: T | undefined): T {
  if (part === undefined) throw new Error('the stage is not open');
  return part;
}

async function until(condition: () => boolean, message: string): Promise<void> {
  for (const endsAt = Date.now() + START_DEADLINE_MS; !condition(); await sleep(10)) {
    if (Date.now() > endsAt) throw new Error(message);
  }
}
