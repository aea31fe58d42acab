import { setTimeout as sleep } from 'node:timers/promises';
import { getHealth } from '../support/http.ts';
import { LONG, PAUSABLE } from './automations.ts';
import type { Chance } from './chance.ts';
import { type Api, hangUp } from './clients.ts';
import type { Fault, FaultKind, Work } from './history.ts';
import type { Part } from './part.ts';
import { HOSTILE } from './receiver.ts';
import type { Stage } from './stage.ts';

/** What orc promises about health when Redis takes no more writes, and when it does again, in milliseconds. */
const HEALTH_WITHIN_MS = 4000;
const HEALTH_POLL_MS = 50;

/** Longer than a worker's lock lives without renewal plus the time until that is noticed, in milliseconds. */
const PAST_LOCK_MS = [42_000, 46_000] as const;

/** The name of the field that only the commands that enqueue a run contain. */
const ENQUEUES = 'requestId';
/** Part of every command of a worker that takes a run or says how one ended. */
const ANY_COMMAND = '$';

/** More than the slots of all workers. */
const HOSTILE_RUNS = 40;

/** More than have lines in the log of an API process within a second, of those that are refused alike. */
const HANG_UPS = 600;
const HANG_UPS_AT_ONCE = 30;

/** After its request is sent, a client hangs up within this time, in milliseconds. */
const LONGEST_PATIENCE_MS = 10;

/** Longer than the longest run takes, in milliseconds. */
const DRAIN_MS = 90_000;

const LONG_START_MS = 8000;
const DROP_WAIT_MS = 1500;
const POLL_MS = 20;

/** Everything that can be broken. Each method breaks one thing, puts it right again and returns. */
export class Faults {
  readonly #stage: Stage;
  readonly #chance: Chance;
  readonly #signal: AbortSignal;

  /** @param signal aborts what is going on; everything is put right before the method throws */
  constructor(stage: Stage, chance: Chance, signal: AbortSignal) {
    this.#stage = stage;
    this.#chance = chance;
    this.#signal = signal;
  }

  async pause(lowMs: number, highMs: number): Promise<void> {
    await sleep(this.#chance.between(lowMs, highMs), undefined, { signal: this.#signal });
  }

  async killRedis(): Promise<void> {
    const { redis } = this.#stage;
    const end = this.#begin('Redis killed', [], ['accepting', 'executing']);
    await redis.kill();
    try {
      await this.pause(20, 1000);
    } finally {
      await redis.start();
      end();
    }
  }

  async freezeRedis(): Promise<void> {
    const { redis } = this.#stage;
    const end = this.#begin('Redis frozen', [], ['accepting', 'executing']);
    redis.freeze();
    try {
      await this.pause(200, this.#chance.is(0.3) ? 6500 : 2000);
    } finally {
      redis.thaw();
      end();
    }
  }

  /** Lets Redis refuse every write for want of memory. */
  async fillRedis(): Promise<void> {
    await this.#stage.connected();
    const { redis } = this.#stage.store;
    const used = /used_memory:(\d+)/.exec(await redis.info('memory'))?.[1];
    const end = this.#begin('Redis full', [], ['accepting', 'executing']);
    await redis.config('SET', 'maxmemory', Math.floor(Number(used) / 2));
    try {
      await this.#expectHealth(503);
      await this.pause(100, 2000);
    } finally {
      await redis.config('SET', 'maxmemory', 0);
      end();
    }
    await this.#expectHealth(200);
  }

  /** Gives Redis back what it held some seconds ago, as a backup does. */
  async restoreRedis(): Promise<void> {
    await this.#stage.connected();
    const { redis, store, history, observer } = this.#stage;
    await store.redis.config('SET', 'auto-aof-rewrite-percentage', 0);
    while (/aof_rewrite_in_progress:1/.test(await store.redis.info('persistence'))) {
      await this.pause(POLL_MS, POLL_MS);
    }
    const restore = { takenAt: Date.now(), restoredAt: Number.POSITIVE_INFINITY };
    await redis.backUp();
    await this.pause(200, 3000);
    const end = this.#begin('Redis restored', [], ['accepting', 'executing']);
    await redis.kill();
    history.restores.push(restore);
    try {
      await redis.restore();
    } finally {
      await redis.start();
      restore.restoredAt = Date.now();
      end();
    }
    await this.#stage.connected();
    await observer.restored();
  }

  /** Kills an API process, or now and then all of them. */
  async killApi(): Promise<void> {
    const { apis } = this.#stage;
    const victims = this.#chance.is(0.2) ? apis : [this.#chance.pick(apis)];
    await Promise.all(victims.map(({ part }) => this.#kill('API killed', part, 'accepting')));
  }

  /** Kills a worker, or now and then all of them. */
  async killWorker(): Promise<void> {
    const { workers } = this.#stage;
    const victims = this.#chance.is(0.2) ? workers : [this.#chance.pick(workers)];
    await Promise.all(victims.map((part) => this.#kill('worker killed', part, 'executing')));
  }

  /** Lets a worker end with its last run, as before an upgrade, and starts it again. */
  async drainWorker(): Promise<void> {
    const { workers, history } = this.#stage;
    const part = this.#chance.pick(workers);
    const { incarnation } = part;
    const end = this.#begin('worker drained', [incarnation], ['executing']);
    if (!(await part.drain(DRAIN_MS))) {
      history.incidents.push({ kind: 'not drained', message: `${incarnation} did not end in order` });
      await part.kill();
    }
    end();
    await part.start();
  }

  /** Pauses an automation and resumes it, and breaks something else in between. */
  async pauseAutomation(): Promise<void> {
    const slug = this.#chance.pick(PAUSABLE);
    const end = this.#begin('automation paused', [slug], []);
    await this.#setPaused(slug, true);
    const pause = { slug, pausedAt: Date.now(), resumedAt: Number.POSITIVE_INFINITY };
    this.#stage.history.pauses.push(pause);
    try {
      await this.pause(1500, 3000);
      await this[this.#chance.pick(['killRedis', 'killApi', 'killWorker', 'drainWorker'] as const)]();
      await this.pause(100, 1000);
    } finally {
      pause.resumedAt = Date.now();
      await this.#setPaused(slug, false);
      end();
    }
  }

  /** As `orc automations pause` and `resume` do, by an operator who tries again. */
  async #setPaused(slug: string, isPaused: boolean): Promise<void> {
    const { store } = this.#stage;
    for (;;) {
      await this.#stage.connected();
      try {
        const id = await store.automations.setPaused(slug, isPaused);
        if (id === undefined) throw new Error(`there is no automation ${slug}`);
        if (!isPaused) await store.lanes.release({ automationId: id, slug });
        return;
      } catch (error) {
        if (store.redis.status === 'ready') throw error;
      }
    }
  }

  /** Delivers to receivers that get HTTP wrong, more at the same time than all workers have slots. */
  async meetHostileReceivers(): Promise<void> {
    const { clients } = this.#stage;
    const end = this.#begin('receivers hostile', [], ['executing']);
    await Promise.all(Array.from({ length: HOSTILE_RUNS }, () => clients.trigger(HOSTILE)));
    end();
  }

  /** Sends requests with keys that nobody was given to all API processes, by clients that do not wait for an answer. */
  async hangUpClients(): Promise<void> {
    const { apis, automations } = this.#stage;
    const end = this.#begin('clients hang up', [], ['accepting']);
    const slugs = [...automations.keys()];
    let left = HANG_UPS;
    const client = async (api: Api) => {
      const patienceMs = this.#chance.between(0, LONGEST_PATIENCE_MS);
      await hangUp(api.url, this.#chance.pick(slugs), patienceMs);
    };
    const clients = Array.from({ length: HANG_UPS_AT_ONCE }, async () => {
      for (; left > 0 && !this.#signal.aborted; left -= 1) await Promise.all(apis.map(client));
    });
    await Promise.all(clients);
    end();
  }

  /** Kills the worker whose command takes longer than its lock will live, if there is one. */
  async killLongWorker(): Promise<void> {
    const part = await this.#workerOfLongCommand();
    if (part) await this.#kill('worker killed', part, 'executing');
  }

  /** Freezes the worker whose command takes longer than its lock lives without renewal, or any other. */
  async freezeWorkerPastLock(): Promise<void> {
    const part = (await this.#workerOfLongCommand()) ?? this.#chance.pick(this.#stage.workers);
    await this.#freezeWorker(part, ...PAST_LOCK_MS);
  }

  async freezeWorker(): Promise<void> {
    await this.#freezeWorker(this.#chance.pick(this.#stage.workers), 200, 2500);
  }

  /** Cuts the connections of the API process and of the worker that reach Redis through a proxy. */
  async cutConnections(): Promise<void> {
    const { proxies, apis, workers } = this.#stage;
    const [api, worker] = [apis[0]?.part.incarnation ?? '', workers[0]?.incarnation ?? ''];
    const end = this.#begin('connections cut', [api, worker], ['accepting', 'executing']);
    for (let cuts = this.#chance.is(0.3) ? 5 : 1; cuts > 0; cuts -= 1) {
      proxies.api.cut();
      proxies.worker.cut();
      await this.pause(0, 30);
    }
    end();
  }

  /** Lets Redis enqueue a run without the API process hearing of it, and cuts the connection. */
  async dropApiReply(): Promise<void> {
    const { proxies, apis } = this.#stage;
    const end = this.#begin('reply dropped', [apis[0]?.part.incarnation ?? ''], ['accepting']);
    // More than one in a row, so that the repetition of the command loses its reply as well.
    await this.#dropReplies(proxies.api, ENQUEUES, this.#chance.pick([1, 1, 2, 3]));
    end();
  }

  /** The same with a worker that takes a run, renews a lock or says how a run has ended. */
  async dropWorkerReply(): Promise<void> {
    const { proxies, workers } = this.#stage;
    const end = this.#begin('reply dropped', [workers[0]?.incarnation ?? ''], ['executing']);
    await this.#dropReplies(proxies.worker, ANY_COMMAND, this.#chance.pick([1, 1, 2]));
    end();
  }

  async #dropReplies(proxy: Stage['proxies']['api'], words: string, count: number): Promise<void> {
    const before = proxy.repliesDropped;
    proxy.dropReplies(words, count);
    const endsAt = Date.now() + DROP_WAIT_MS;
    try {
      while (proxy.repliesDropped < before + count && Date.now() < endsAt) {
        await this.pause(POLL_MS, POLL_MS);
      }
    } finally {
      proxy.stopDropping();
    }
  }

  async #kill(kind: FaultKind, part: Part, work: Work): Promise<void> {
    const end = this.#begin(kind, [part.incarnation], [work]);
    await part.kill();
    try {
      await this.pause(50, 1000);
    } finally {
      end();
      await part.start();
    }
  }

  async #freezeWorker(part: Part, lowMs: number, highMs: number): Promise<void> {
    const end = this.#begin('worker frozen', [part.incarnation], ['executing']);
    part.freeze();
    try {
      await this.pause(lowMs, highMs);
    } finally {
      part.thaw();
      end();
    }
  }

  /** Starts a command that outlives the lock of a dead worker, and finds out who executes it. */
  async #workerOfLongCommand(): Promise<Part | undefined> {
    const { clients, observer, history, workers } = this.#stage;
    if (observer.openOf(LONG) > 0) return undefined;
    const runId = await clients.trigger(LONG);
    if (runId === undefined) return undefined;
    for (const endsAt = Date.now() + LONG_START_MS; Date.now() < endsAt; await this.pause(POLL_MS, POLL_MS)) {
      const record = history.attempts.get(runId)?.at(-1);
      const part = workers.find(({ incarnation }) => incarnation === record?.worker);
      if (!part) continue;
      // Its first line is written by now, or will be without the worker.
      await this.pause(100, 500);
      return part;
    }
    return undefined;
  }

  async #expectHealth(status: number): Promise<void> {
    const { apis, history } = this.#stage;
    for (const { name, url } of apis) {
      const endsAt = Date.now() + HEALTH_WITHIN_MS;
      for (;;) {
        const health = await getHealth(url);
        if (health.status === status) break;
        if (Date.now() > endsAt) {
          const message = `${name}: the health is ${health.status} for ${HEALTH_WITHIN_MS} ms, not ${status}`;
          history.incidents.push({ kind: 'wrong health', message });
          break;
        }
        await this.pause(HEALTH_POLL_MS, HEALTH_POLL_MS);
      }
    }
  }

  #begin(kind: FaultKind, parts: string[], awaited: Work[]): () => void {
    const { history, scenario } = this.#stage;
    const fault: Fault = history.faultStarted(kind, scenario, parts);
    return () => history.faultEnded(fault, awaited);
  }
}
