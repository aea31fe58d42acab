import { hash } from 'node:crypto';
import type { IRedisTransaction, Job } from 'bullmq';
import { Command } from 'ioredis';
import type { ConfirmedKey } from './automations.ts';
import type { RedisClient } from './connect.ts';
import { type CommandValues, EncodedCommand, type EncodedSample } from './encoded-command.ts';
import type { Keys } from './keys.ts';
import type { BullQueue } from './queue.ts';
import { acceptedAtOf } from './run-id.ts';

/**
 * Goes in front of BullMQ's script that adds a job, as part of it: unless the key and the automation are what they are
 * expected to be, the script ends here, and Redis is as it was. A run that exists already was let in when this was first
 * executed: the connection was lost before the answer came, and ioredis has sent the script again. That is looked at
 * first, unless the script is sent for the first time, and writes nothing, so that a Redis that takes no writes any more
 * does not deny it.
 *
 * The hash is compared without a care for time: Lua compares strings by their addresses, and only a key that Redis has
 * confirmed before comes this far.
 */
const GUARD = `
  do
    local automationKey, openRunsKey, latestRunsKey, jobKey = unpack(KEYS, #KEYS - 3)
    local id, keyHash, attempts, runId, slug, acceptedAt, isNew = unpack(ARGV, #ARGV - 6)
    if isNew ~= '1' and redis.call('EXISTS', jobKey) == 1 then return runId end
    local found = redis.call('HMGET', automationKey, 'id', 'enabled', 'keyHash', 'attempts', 'concurrency', 'rate')
    local isExpected = found[1] == id and found[2] == '1' and found[3] == keyHash and found[4] == attempts
      and not found[5] and not found[6]
    if not isExpected then return false end
    redis.call('ZADD', openRunsKey, 0, runId)
    redis.call('ZADD', latestRunsKey, 'GT', acceptedAt, slug)
  end
`;

/** The script's last argument: whether the run can exist already, as it can when this may have been sent before. */
const IS_NEW = '1';
const MAY_EXIST = '0';

/** What is used of ioredis' commands that are scripts, whose types keep them private. */
type Scripts = Record<string, { lua: string; numberOfKeys: number } | undefined>;
type Commands = Record<string, (args: Argument[]) => Promise<unknown>>;
type Argument = string | number | Buffer;

type JobJson = ReturnType<Job['asJSON']>;

/** A script that BullMQ would execute. */
interface ScriptCall {
  name: string;
  lua: string;
  keys: Argument[];
  values: Argument[];
}

/** What differs from run to run. */
export interface GuardedRun {
  id: string;
  /** JSON text of the job's data. */
  data: string;
  /** Milliseconds since the epoch. */
  timestamp: number;
}

/** Two runs that there never are. */
const SAMPLES: readonly GuardedRun[] = [
  {
    id: 'run_01900000-0000-7000-8000-000000000001',
    data: '{"sample":"one"}',
    timestamp: 1_700_000_000_123,
  },
  {
    id: 'run_01a23456-789a-7bcd-9ef0-123456789abc',
    data: '{"sample":"two, which is longer, and not only ASCII: é"}',
    timestamp: 1_800_000_000_456,
  },
];

/**
 * Adds runs of an automation, so that the key is judged and the run enqueued in one round trip. Redis that syncs its file
 * for every write answers nobody before that is done, so that each round trip takes a long time, however little it asks.
 * An API process therefore guesses that a key which was right is still right. What decides is what Redis holds when it
 * enqueues the run: BullMQ's own script is executed with {@link GUARD} in front of it, and a script is atomic. BullMQ
 * computes the keys and arguments of its script, which ours follow.
 *
 * It computes them twice, for two runs that there never are, and the command is encoded: what of it differs from run to
 * run is written into a copy of the rest from then on, which takes a third of the time.
 *
 * Where it is wrong, or BullMQ's script is not to be found, nothing is enqueued and the reply is null; the two steps of
 * which this is a shortcut then say why.
 */
export class GuardedAccept {
  readonly #redis: RedisClient;
  readonly #keys: Keys;
  readonly #queue: BullQueue;
  readonly #expected: ConfirmedKey;
  readonly #template: JobJson;
  #encoding: Promise<void> | undefined;
  #encoded: { command: EncodedCommand; sha: string } | undefined;

  /** @param template a job of the automation, of which id, data and timestamp do not matter */
  constructor(redis: RedisClient, keys: Keys, queue: BullQueue, expected: ConfirmedKey, template: JobJson) {
    this.#redis = redis;
    this.#keys = keys;
    this.#queue = queue;
    this.#expected = expected;
    this.#template = template;
  }

  /** @returns the run's id, or null where nothing was enqueued because it is not as expected */
  async add(run: GuardedRun): Promise<string | null> {
    if (!this.#encoded) {
      // What cannot be encoded is always sent as BullMQ and ioredis do it; the first run is, which brings Redis the script.
      this.#encoding ??= this.#encode().catch(() => undefined);
      return this.#execute(run);
    }
    const { command, sha } = this.#encoded;
    try {
      const whole = new WholeCommand(sha, this.#keys.latestRuns, command.encode(valuesOf(run)));
      return runIdOf(await this.#redis.sendCommand(whole));
    } catch (error) {
      // Redis does not know the script: on a new connection, or after SCRIPT FLUSH. It has executed nothing.
      if (error instanceof Error && error.message.startsWith('NOSCRIPT')) return this.#execute(run);
      throw error;
    }
  }

  /** Encodes the command, unless that cannot be done in this way. */
  async #encode(): Promise<void> {
    const [one, other] = await Promise.all(SAMPLES.map((run) => this.#sample(run)));
    const command = one && other && EncodedCommand.from(one, other);
    if (command) this.#encoded = { command, sha: one.sha };
  }

  async #sample(run: GuardedRun): Promise<(EncodedSample & { sha: string }) | undefined> {
    const call = await this.#call(run, IS_NEW);
    if (!call) return undefined;
    const sha = hash('sha1', call.lua);
    const whole = new Command('evalsha', [sha, call.keys.length, ...call.keys, ...call.values]);
    return { sha, values: valuesOf(run), bytes: Buffer.from(whole.toWritable({})) };
  }

  async #execute(run: GuardedRun): Promise<string | null> {
    const call = await this.#call(run, MAY_EXIST);
    if (!call) return null;
    const name = `${call.name}:guarded`;
    if (!(name in this.#redis)) {
      this.#redis.defineCommand(name, { lua: call.lua, numberOfKeys: call.keys.length });
    }
    return runIdOf(await (this.#redis as unknown as Commands)[name]?.([...call.keys, ...call.values]));
  }

  /** What BullMQ would execute to add the run, with our part of it. */
  async #call({ id, data, timestamp }: GuardedRun, isNew: string): Promise<ScriptCall | undefined> {
    let call: ScriptCall | undefined;
    const runCommand = async (name: string, args: Argument[]) => {
      const script = (this.#redis.scriptsSet as Scripts)[name];
      if (!script) return null;
      const { lua, numberOfKeys } = script;
      const { automation, keyHash } = this.#expected;
      const { slug, attempts } = automation;
      const jobKey = this.#queue.toKey(id);
      const { openRuns, latestRuns } = this.#keys;
      call = {
        name,
        lua: GUARD + lua,
        keys: [
          ...args.slice(0, numberOfKeys),
          ...[this.#keys.automation(slug), openRuns(slug), latestRuns, jobKey],
        ],
        values: [
          ...args.slice(numberOfKeys),
          ...[automation.id, keyHash, attempts, id, slug, acceptedAtOf(id).getTime(), isNew],
        ],
      };
      return null;
    };
    const job = { ...this.#template, data, timestamp };
    const recorder = { runCommand } as unknown as IRedisTransaction;
    await this.#queue.getBackend().addJobToTransaction(recorder, job, id);
    return call;
  }
}

/** Spelled out, as a spread object would get a hidden class of its own each time. */
function valuesOf({ id, data, timestamp }: GuardedRun): CommandValues {
  return { id, data, timestamp, acceptedAt: acceptedAtOf(id).getTime() };
}

/** BullMQ's script answers with the id, or with a number when it has added nothing. */
function runIdOf(reply: unknown): string | null {
  if (reply !== null && typeof reply !== 'string') throw new Error(`BullMQ's script has answered ${reply}.`);
  return reply;
}

/** A command that was encoded before; of its arguments, only what tells a cluster's node is given. */
class WholeCommand extends Command {
  readonly #bytes: Buffer;
  #wasSent = false;

  constructor(sha: string, key: string, bytes: Buffer) {
    super('evalsha', [sha, '1', key], { replyEncoding: 'utf8' });
    this.#bytes = bytes;
  }

  /** ioredis asks for it each time it sends the command, and sends it again over a new connection. */
  override toWritable(): Buffer {
    if (this.#wasSent) this.#bytes.write(MAY_EXIST, this.#bytes.length - `${IS_NEW}\r\n`.length, 'latin1');
    this.#wasSent = true;
    return this.#bytes;
  }
}
