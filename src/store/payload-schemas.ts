import { LruMap } from 'toad-cache';
import type { PayloadCheck } from '../core/payload-schema.ts';
import type { PayloadSchema } from '../core/payload-schema-cost.ts';
import type { TriggeredAutomation } from './automations.ts';
import type { RedisClient } from './connect.ts';
import type { Keys } from './keys.ts';
import { QueueUnavailableError } from './queue.ts';

/** Compiled schemas that are kept, some 100 KB each; the least recently used are dropped first. */
const MAX_COMPILED = 200;

/** What the schema of an automation says of a payload. */
export type PayloadVerdict =
  | { status: 'fits' }
  | { status: 'invalid'; problem: string }
  /** The automation has another schema, or none, by now. */
  | { status: 'changed' };

/** Checks payloads by their automations' schemas. A schema is read and compiled once, and again when it has changed. */
export class PayloadSchemas {
  readonly #redis: RedisClient;
  readonly #keys: Keys;
  readonly #compiled = new LruMap<Promise<PayloadCheck | undefined>>(MAX_COMPILED);

  constructor(redis: RedisClient, keys: Keys) {
    this.#redis = redis;
    this.#keys = keys;
  }

  /**
   * @param payload JSON text of an object
   * @throws QueueUnavailableError when the schema cannot be read
   */
  async judge(automation: TriggeredAutomation, payload: string): Promise<PayloadVerdict> {
    const { slug, schemaHash } = automation;
    if (schemaHash === undefined) return { status: 'fits' };
    const compiling = this.#compiled.get(schemaHash) ?? this.#compile(slug, schemaHash);
    this.#compiled.set(schemaHash, compiling);
    const check = await compiling.catch((cause: Error) => {
      // It is read again next time.
      this.#compiled.delete(schemaHash);
      throw new QueueUnavailableError(`The schema of ${slug} was not read: ${cause.message}`, { cause });
    });
    if (!check) {
      this.#compiled.delete(schemaHash);
      return { status: 'changed' };
    }
    const problem = check(payload);
    return problem === undefined ? { status: 'fits' } : { status: 'invalid', problem };
  }

  async #compile(slug: string, schemaHash: string): Promise<PayloadCheck | undefined> {
    const [text, hash] = await this.#redis.hmget(this.#keys.automation(slug), 'schema', 'schemaHash');
    if (!text || hash !== schemaHash) return undefined;
    // Loaded by the first automation that has a schema.
    const { compilePayloadSchema } = await import('../core/payload-schema.ts');
    return compilePayloadSchema(JSON.parse(text) as PayloadSchema);
  }
}
