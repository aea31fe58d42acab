import type { Artifact, ArtifactList } from '../core/artifact.ts';
import type { RedisClient } from './connect.ts';
import type { Keys } from './keys.ts';
import { jobKeyOf } from './queue.ts';

/** Artifacts are stored in pieces of this many bytes, so that reading a large one needs little memory. */
const CHUNK_BYTES = 256 * 1024;

/** The field of a run's hash with its {@link StoredList}, as JSON. The others hold the pieces: `<artifact>:<piece>`. */
const LIST_FIELD = 'list';

/**
 * Replaces the artifacts of a run, unless the attempt is no longer the run's latest or the run has ended. KEYS: job,
 * artifacts. ARGV: attempt, seconds to keep them, fields and values. The first write is one that Redis denies when it is
 * out of memory, since the others are then not denied any more.
 */
const SAVE = `
  local attempt, endedAt = unpack(redis.call('HMGET', KEYS[1], 'ats', 'finishedOn'))
  if attempt ~= ARGV[1] or endedAt then return 0 end
  if #ARGV > 2 then redis.call('HSET', KEYS[2], '${LIST_FIELD}', '') end
  redis.call('DEL', KEYS[2])
  if #ARGV > 2 then
    redis.call('HSET', KEYS[2], unpack(ARGV, 3))
    redis.call('EXPIRE', KEYS[2], ARGV[2])
  end
  return 1`;

/** What is stored of a run's artifacts besides their bytes. */
interface StoredList extends ArtifactList {
  attempt: number;
}

/** The artifacts of a run: those of its last attempt that was executed. */
export type RunArtifacts = StoredList;

/** The files that the actions of runs left, bounded by who saves them. They are removed with their run. */
export class ArtifactStore {
  readonly #redis: RedisClient;
  readonly #keys: Keys;

  constructor(redis: RedisClient, keys: Keys) {
    this.#redis = redis;
    this.#keys = keys;
  }

  /**
   * Stores what an attempt has left, in place of what an earlier attempt left. Does nothing if another attempt has begun or
   * the run has ended: a worker that has lost its run changes nothing.
   *
   * @param data the bytes of each artifact of the list, in the same order
   * @param ttlSeconds how long they are kept at most
   * @returns whether they are stored
   * @throws when Redis refuses, for lack of memory for example
   */
  async save(
    run: { id: string; attempt: number },
    list: ArtifactList,
    data: readonly Buffer[],
    ttlSeconds: number,
  ): Promise<boolean> {
    const values: (string | Buffer)[] = [];
    if (list.artifacts.length + list.omittedCount > 0) {
      const stored: StoredList = { attempt: run.attempt, ...list };
      values.push(LIST_FIELD, JSON.stringify(stored));
    }
    for (const [index, bytes] of data.entries()) {
      for (let start = 0; start < bytes.length; start += CHUNK_BYTES) {
        values.push(fieldOf(index, start), bytes.subarray(start, start + CHUNK_BYTES));
      }
    }
    const keys = [jobKeyOf(this.#keys, run.id), this.#keys.artifacts(run.id)];
    const limits = [run.attempt, Math.ceil(ttlSeconds)];
    return (await this.#redis.eval(SAVE, keys.length, ...keys, ...limits, ...values)) === 1;
  }

  /** What a run has left; undefined when it left nothing, or when it is no longer kept. */
  async list(runId: string): Promise<RunArtifacts | undefined> {
    const text = await this.#redis.hget(this.#keys.artifacts(runId), LIST_FIELD);
    return text ? (JSON.parse(text) as RunArtifacts) : undefined;
  }

  /**
   * The bytes of one artifact, piece by piece.
   *
   * @param name as in the list
   * @returns undefined when there is no such artifact
   * @throws while it is read, when it is removed or replaced meanwhile
   */
  async open(
    runId: string,
    name: string,
  ): Promise<{ artifact: Artifact; chunks: AsyncIterable<Buffer> } | undefined> {
    const { artifacts = [] } = (await this.list(runId)) ?? {};
    const index = artifacts.findIndex((each) => each.name === name);
    const artifact = artifacts[index];
    return artifact && { artifact, chunks: this.#read(runId, index, artifact) };
  }

  async *#read(runId: string, index: number, { name, bytes }: Artifact): AsyncGenerator<Buffer> {
    for (let start = 0; start < bytes; start += CHUNK_BYTES) {
      const chunk = await this.#redis.hgetBuffer(this.#keys.artifacts(runId), fieldOf(index, start));
      if (chunk?.length !== Math.min(CHUNK_BYTES, bytes - start)) {
        throw new Error(`${JSON.stringify(name)} was removed or replaced while it was read`);
      }
      yield chunk;
    }
  }
}

function fieldOf(index: number, start: number): string {
  return `${index}:${start / CHUNK_BYTES}`;
}
