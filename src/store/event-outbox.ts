import { isTerminal, type Run } from '../core/run.ts';
import {
  EVENT_RECEIVERS,
  type EventDelivery,
  type EventReceiver,
  eventIdOf,
  runIdOf,
} from '../core/run-event.ts';
import type { RedisClient } from './connect.ts';
import type { Keys } from './keys.ts';
import { QUEUE_NAME } from './queue.ts';

/** Events of an automation that wait at most; half of them for each URL if it has two. */
export const MAX_WAITING_EVENTS = 10_000;

/** What the waiting events of one URL may take in Redis, in bytes: results are up to 64 KiB. */
const MAX_WAITING_BYTES = 64 * 1024 * 1024;

const TOO_MANY = 'Too many events of the automation waited for this URL.';

/** orc's own field of a job's hash: what became of its event. */
const DELIVERY_FIELD = 'event:';

const NOW = `
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)`;

/**
 * Lua functions for the script that ends a run: `queueEvents` puts the event of the run into the queues of the automation's URLs,
 * as far as it has any and there is place. Returns how many were queued.
 */
export const QUEUE_EVENTS = `
  local function queueEvent(event, receiver, queue, bodies, limit)
    local queueId = event.slug .. ':' .. receiver
    local bytes = tonumber(redis.call('HGET', event.eventBytes, queueId) or '0') + #event.body
    if redis.call('ZCARD', queue) >= limit or bytes > ${MAX_WAITING_BYTES} then
      local delivery =
        '{"status":"dropped","at":' .. string.format('%.0f', event.now) .. ',"tries":0,"lastError":"${TOO_MANY}"}'
      redis.call('HINCRBY', event.eventDrops, event.slug, 1)
      redis.call('HSET', event.eventDrops, event.slug .. ':' .. receiver, delivery)
      redis.call('HSET', event.job, '${DELIVERY_FIELD}' .. receiver, delivery)
      return 0
    end
    redis.call('ZADD', queue, event.now, event.id)
    redis.call('HSET', bodies, event.id, event.body)
    redis.call('HSET', event.eventBytes, queueId, bytes)
    -- A queue that somebody sends from, or whose receiver fails, gets its time when that is over.
    local isHeld = redis.call('HEXISTS', event.eventTurns, queueId) + redis.call('HEXISTS', event.eventFailures, queueId) > 0
    if isHeld then
      redis.call('ZADD', event.eventQueues, 'NX', event.now, queueId)
    else
      redis.call('ZADD', event.eventQueues, event.now, queueId)
    end
    return 1
  end

  local function queueEvents(event)
    local id, onEnd, onFailure = unpack(redis.call('HMGET', event.automation, 'id', 'onEnd', 'onFailure'))
    if id ~= event.automationId or not (onEnd or onFailure) then return 0 end
    ${NOW}
    event.now = now
    local result = event.hasResult and redis.call('GET', event.result)
    if result then event.body = string.sub(event.body, 1, -3) .. ',"result":' .. result .. '}}' end
    local limit = ${MAX_WAITING_EVENTS}
    if onEnd and onFailure then limit = limit / 2 end
    local queued = 0
    if onEnd then queued = queueEvent(event, 'onEnd', event.endQueue, event.endBodies, limit) end
    if onFailure and event.isFailure then
      queued = queued + queueEvent(event, 'onFailure', event.failureQueue, event.failureBodies, limit)
    end
    return queued
  end`;

/** Each acts only for the holder of the queue's turn, except `take`, which hands it out. */
const SCRIPTS = {
  take: `${NOW}
    local queueId = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, 1)[1]
    if not queueId then return end
    redis.call('ZADD', KEYS[1], now + ARGV[2], queueId)
    redis.call('HSET', KEYS[2], queueId, ARGV[1])
    return {queueId, redis.call('HGET', KEYS[3], queueId)}`,
  read: `${NOW}
    local queue, bodies, tries, automation = unpack(KEYS)
    local ids = redis.call('ZRANGEBYSCORE', queue, '-inf', now, 'LIMIT', 0, ARGV[2])
    local fields = redis.call('HMGET', automation, ARGV[1], 'signingSecret', 'previousSecret', 'previousSecretEndsAt')
    if #ids == 0 then return {now, fields, {}, {}, {}} end
    return {now, fields, ids, redis.call('HMGET', bodies, unpack(ids)), redis.call('HMGET', tries, unpack(ids))}`,
  retry: `${NOW}
    local turns, queue, tries = unpack(KEYS)
    local queueId, token, eventId, pauseMs, delivery = unpack(ARGV)
    if redis.call('HGET', turns, queueId) ~= token or not redis.call('ZSCORE', queue, eventId) then return end
    redis.call('ZADD', queue, now + pauseMs, eventId)
    redis.call('HSET', tries, eventId, delivery)`,
  remove: `
    local turns, queue, tries, bodies, eventBytes, eventDrops, job = unpack(KEYS)
    local queueId, token, eventId, field, delivery, droppedSlug = unpack(ARGV)
    if redis.call('HGET', turns, queueId) ~= token or redis.call('ZREM', queue, eventId) == 0 then return end
    -- Not a minus: that would make "-0" of nothing, which is no integer to Redis.
    redis.call('HINCRBY', eventBytes, queueId, 0 - redis.call('HSTRLEN', bodies, eventId))
    redis.call('HDEL', bodies, eventId)
    redis.call('HDEL', tries, eventId)
    if droppedSlug ~= '' then
      redis.call('HINCRBY', eventDrops, droppedSlug, 1)
      redis.call('HSET', eventDrops, queueId, delivery)
    end
    -- The run may be kept no longer.
    if redis.call('EXISTS', job) == 1 then redis.call('HSET', job, field, delivery) end`,
  release: `${NOW}
    local queues, turns, failures, bytes, queue = unpack(KEYS)
    local queueId, token, failing, pauseMs = unpack(ARGV)
    if redis.call('HGET', turns, queueId) ~= token then return end
    redis.call('HDEL', turns, queueId)
    redis.call('HDEL', failures, queueId)
    local first = redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')
    if #first == 0 then
      redis.call('ZREM', queues, queueId)
      redis.call('HDEL', bytes, queueId)
      return
    end
    if failing ~= '' then redis.call('HSET', failures, queueId, failing) end
    redis.call('ZADD', queues, math.max(tonumber(first[2]), now + pauseMs), queueId)`,
  clear: `
    local queues, turns, failures, bytes, eventDrops, queue, bodies, tries = unpack(KEYS)
    local queueId, token, slug = unpack(ARGV)
    if redis.call('HGET', turns, queueId) ~= token then return end
    local count = redis.call('ZCARD', queue)
    if count > 0 then redis.call('HINCRBY', eventDrops, slug, count) end
    redis.call('UNLINK', queue, bodies, tries)
    for _, key in ipairs({turns, failures, bytes}) do redis.call('HDEL', key, queueId) end
    redis.call('ZREM', queues, queueId)`,
} as const;

/** The right to send the events of one queue: only one worker has it, until it releases it or its time is over. */
export interface EventTurn {
  slug: string;
  receiver: EventReceiver;
  token: string;
  /** Absent when something was delivered in the turn before. */
  failing?: FailingReceiver;
}

/** A URL to which nothing can be delivered. */
export interface FailingReceiver {
  /** How many turns in a row have delivered nothing. */
  turns: number;
  /** When the first of them ended. */
  since: Date;
  /** What went wrong with the latest try: one sentence. */
  lastError: string;
}

/** An event as it is sent. */
export interface WaitingEvent {
  /** `webhook-id` */
  id: string;
  runId: string;
  /** JSON text, the same in every try. */
  body: string;
  /** How often it was tried before. */
  tries: number;
}

/** The next events of a queue. */
export interface EventBatch {
  /** Undefined when the automation has no such URL any more. */
  url: string | undefined;
  signingSecrets: string[];
  events: WaitingEvent[];
}

/** The queue of one URL. */
export interface EventQueueState {
  slug: string;
  receiver: EventReceiver;
  waiting: number;
  /** When a worker may send the next ones. */
  dueAt: Date;
  failing?: FailingReceiver;
}

/** The events of an automation that were given up, or found too many waiting. */
export interface EventDrops {
  count: number;
  /** The latest of each URL, except those that were dropped because an operator took the URL away. */
  latest: { receiver: EventReceiver; at: Date; lastError: string }[];
}

/**
 * The events that wait to be delivered: for each URL of an automation a queue of its own, so that a receiver that is down holds
 * nothing else up. The script that ends a run queues its event ({@link QUEUE_EVENTS}). All times are Redis'.
 */
export class EventOutbox {
  readonly #redis: RedisClient;
  readonly #keys: Keys;

  constructor(redis: RedisClient, keys: Keys) {
    this.#redis = redis;
    this.#keys = keys;
  }

  /**
   * Takes the turn at the queue that has been due for longest.
   *
   * @param token distinguishes this turn from every other one
   * @param leaseMs after this long, another worker may take the turn
   */
  async take(token: string, leaseMs: number): Promise<EventTurn | undefined> {
    const { eventQueues, eventTurns, eventFailures } = this.#keys;
    const keys = [eventQueues, eventTurns, eventFailures];
    const taken = await this.#redis.eval(SCRIPTS.take, keys.length, ...keys, token, leaseMs);
    if (!taken) return undefined;
    const [queueId, failing] = taken as [string, string | null];
    const [slug = '', receiver] = queueId.split(':');
    return { slug, receiver: receiver as EventReceiver, token, ...failingIn(failing) };
  }

  /** Reads the events of a queue that are due, those that have been so for longest first. */
  async read({ slug, receiver }: EventTurn, limit: number): Promise<EventBatch> {
    const { automation, eventQueue, eventBodies, eventTries } = this.#keys;
    const keys = [
      eventQueue(slug, receiver),
      eventBodies(slug, receiver),
      eventTries(slug, receiver),
      automation(slug),
    ];
    const reply = await this.#redis.eval(SCRIPTS.read, keys.length, ...keys, receiver, limit);
    const [now, fields, ids, bodies, tries] = reply as [number, Reply, string[], Reply, Reply];
    const [url, current, previous, previousEndsAt] = fields;
    const isInGrace = previous && Number(previousEndsAt) > now;
    return {
      url: url ?? undefined,
      signingSecrets: [...(current ? [current] : []), ...(isInGrace ? [previous] : [])],
      events: ids.map((id, index) => ({
        id,
        runId: runIdOf(id),
        body: bodies[index] ?? '',
        tries: (JSON.parse(tries[index] ?? '{}') as { tries?: number }).tries ?? 0,
      })),
    };
  }

  /** Keeps an event for another try. @param pauseMs from now on */
  async retry(turn: EventTurn, event: WaitingEvent, pauseMs: number, lastError: string): Promise<void> {
    const { eventTurns, eventQueue, eventTries } = this.#keys;
    const { slug, receiver, token } = turn;
    const keys = [eventTurns, eventQueue(slug, receiver), eventTries(slug, receiver)];
    const delivery = JSON.stringify({ tries: event.tries + 1, lastError });
    const values = [queueIdOf(turn), token, event.id, Math.round(pauseMs), delivery];
    await this.#redis.eval(SCRIPTS.retry, keys.length, ...keys, ...values);
  }

  /** Removes an event that is delivered. @param tries this one included */
  async delivered(turn: EventTurn, event: WaitingEvent): Promise<void> {
    await this.#remove(turn, event, { status: 'delivered', at: Date.now(), tries: event.tries + 1 });
  }

  /** Removes an event that is not delivered. @param tries how often it was */
  async drop(turn: EventTurn, event: WaitingEvent, tries: number, lastError: string): Promise<void> {
    await this.#remove(turn, event, { status: 'dropped', at: Date.now(), tries, lastError });
  }

  async #remove(turn: EventTurn, { id, runId }: WaitingEvent, delivery: StoredDelivery): Promise<void> {
    const { eventTurns, eventQueue, eventTries, eventBodies, eventBytes, eventDrops } = this.#keys;
    const { slug, receiver, token } = turn;
    const keys = [
      ...[eventTurns, eventQueue(slug, receiver), eventTries(slug, receiver), eventBodies(slug, receiver)],
      ...[eventBytes, eventDrops, this.#jobKey(runId)],
    ];
    const droppedSlug = delivery.status === 'dropped' ? slug : '';
    const values = [
      queueIdOf(turn),
      token,
      id,
      DELIVERY_FIELD + receiver,
      JSON.stringify(delivery),
      droppedSlug,
    ];
    await this.#redis.eval(SCRIPTS.remove, keys.length, ...keys, ...values);
  }

  /**
   * Ends a turn.
   *
   * @param failing absent when something was delivered
   * @param pauseMs how long nothing is sent to this URL
   */
  async release(turn: EventTurn, failing: FailingReceiver | undefined, pauseMs: number): Promise<void> {
    const { eventQueues, eventTurns, eventFailures, eventBytes, eventQueue } = this.#keys;
    const queue = eventQueue(turn.slug, turn.receiver);
    const keys = [eventQueues, eventTurns, eventFailures, eventBytes, queue];
    const failingText = failing ? JSON.stringify(failing) : '';
    const values = [queueIdOf(turn), turn.token, failingText, Math.round(pauseMs)];
    await this.#redis.eval(SCRIPTS.release, keys.length, ...keys, ...values);
  }

  /** Ends a turn and drops all events of the queue, whose URL the automation does not have any more. */
  async clear(turn: EventTurn): Promise<void> {
    const { eventQueues, eventTurns, eventFailures, eventBytes, eventDrops } = this.#keys;
    const { eventQueue, eventBodies, eventTries } = this.#keys;
    const { slug, receiver, token } = turn;
    const keys = [
      ...[eventQueues, eventTurns, eventFailures, eventBytes, eventDrops],
      ...[eventQueue, eventBodies, eventTries].map((key) => key(slug, receiver)),
    ];
    await this.#redis.eval(SCRIPTS.clear, keys.length, ...keys, queueIdOf(turn), token, slug);
  }

  /** What became of the event of a run, at each URL that it goes or went to. */
  async deliveriesOf({ id, automation: slug, status }: Run): Promise<EventDelivery[]> {
    if (!isTerminal(status)) return [];
    const eventId = eventIdOf(id, status);
    const found = EVENT_RECEIVERS.map(async (receiver): Promise<EventDelivery[]> => {
      const { eventQueue, eventTries } = this.#keys;
      // In this order, an event that is delivered in the meantime is found in the second place.
      const [due, tries] = await Promise.all([
        this.#redis.zscore(eventQueue(slug, receiver), eventId),
        this.#redis.hget(eventTries(slug, receiver), eventId),
      ]);
      if (due !== null) {
        const before = tries === null ? { tries: 0 } : (JSON.parse(tries) as Tries);
        return [{ receiver, status: 'waiting', ...before, nextTryAt: new Date(Number(due)) }];
      }
      const stored = await this.#redis.hget(this.#jobKey(id), DELIVERY_FIELD + receiver);
      if (stored === null) return [];
      const delivery = JSON.parse(stored) as StoredDelivery;
      return [{ receiver, ...delivery, at: new Date(delivery.at) }];
    });
    return (await Promise.all(found)).flat();
  }

  /** The queues in which events wait. */
  async queues(): Promise<EventQueueState[]> {
    const { eventQueues, eventQueue, eventFailures } = this.#keys;
    const found = await this.#redis.zrange(eventQueues, 0, '-1', 'WITHSCORES');
    const ids = found.filter((_, index) => index % 2 === 0);
    return Promise.all(
      ids.map(async (queueId, index) => {
        const [slug = '', name] = queueId.split(':');
        const receiver = name as EventReceiver;
        const [waiting, failing] = await Promise.all([
          this.#redis.zcard(eventQueue(slug, receiver)),
          this.#redis.hget(eventFailures, queueId),
        ]);
        const dueAt = new Date(Number(found[2 * index + 1]));
        return { slug, receiver, waiting, dueAt, ...failingIn(failing) };
      }),
    );
  }

  /** What was dropped of each automation, by slug. */
  async drops(): Promise<Map<string, EventDrops>> {
    const found = await this.#redis.hgetall(this.#keys.eventDrops);
    const counts = Object.entries(found).filter(([field]) => !field.includes(':'));
    return new Map(
      counts.map(([slug, count]) => {
        const latest = EVENT_RECEIVERS.flatMap((receiver) => {
          const stored = found[`${slug}:${receiver}`];
          if (stored === undefined) return [];
          const { at, lastError = '' } = JSON.parse(stored) as StoredDelivery;
          return [{ receiver, at: new Date(at), lastError }];
        });
        return [slug, { count: Number(count), latest }];
      }),
    );
  }

  #jobKey(runId: string): string {
    return `${this.#keys.queuePrefix}:${QUEUE_NAME}:${runId}`;
  }
}

type Reply = (string | null)[];
type Tries = Pick<EventDelivery, 'tries' | 'lastError'>;
type StoredDelivery = Tries & { status: 'delivered' | 'dropped'; at: number };

function failingIn(text: string | null): { failing?: FailingReceiver } {
  if (text === null) return {};
  const failing = JSON.parse(text) as FailingReceiver;
  return { failing: { ...failing, since: new Date(failing.since) } };
}

function queueIdOf({ slug, receiver }: EventTurn): string {
  return `${slug}:${receiver}`;
}
