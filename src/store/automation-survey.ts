import type { RedisClient } from './connect.ts';
import type { Keys } from './keys.ts';
import type { RunIndex } from './run-index.ts';

/** Automations per script, which blocks Redis for a few milliseconds. */
const BATCH = 500;

/** What a list of very many automations is chosen and ordered by. */
export interface SurveyedAutomation {
  slug: string;
  /** Deleted automations have runs that are kept. */
  state: 'enabled' | 'disabled' | 'paused' | 'deleted';
  /** Runs that have not ended. */
  open: number;
  /** Ended runs that are kept. */
  ended: number;
  /** Kept runs that failed or timed out since the time that was asked for. */
  failed: number;
}

/** Looks at all automations: at ten thousand in twenty commands. */
export class AutomationSurvey {
  readonly #redis: RedisClient;
  readonly #keys: Keys;
  readonly #index: RunIndex;

  constructor(redis: RedisClient, keys: Keys, index: RunIndex) {
    this.#redis = redis;
    this.#keys = keys;
    this.#index = index;
  }

  /** All automations, by slug, and then the deleted ones whose runs are kept. */
  async read(failedSince: Date): Promise<SurveyedAutomation[]> {
    await this.#index.prepareFailed();
    const { automations, formerAutomations } = this.#keys;
    const current = await this.#readSet(automations, failedSince);
    const slugs = new Set(current.map(({ slug }) => slug));
    const former = await this.#readSet(formerAutomations, failedSince);
    return [...current, ...former.filter(({ slug }) => !slugs.has(slug))];
  }

  async #readSet(key: string, failedSince: Date): Promise<SurveyedAutomation[]> {
    const found: SurveyedAutomation[] = [];
    for (let after = '-'; after !== ''; ) {
      const reply = await this.#redis.eval(this.#script(), 1, key, after, failedSince.getTime());
      const rows = reply as [
        slug: string,
        SurveyedAutomation['state'],
        open: number,
        ended: number,
        failed: number,
      ][];
      found.push(...rows.map(([slug, state, open, ended, failed]) => ({ slug, state, open, ended, failed })));
      after = rows.length < BATCH ? '' : `(${rows.at(-1)?.[0]}`;
    }
    return found;
  }

  /** Makes the names of the keys itself: all are in one slot. */
  #script(): string {
    const { automation, openRuns, endedRuns, failedRuns } = this.#keys;
    const slug = `' .. slug .. '`;
    return `
      local rows = {}
      for i, slug in ipairs(redis.call('ZRANGEBYLEX', KEYS[1], ARGV[1], '+', 'LIMIT', 0, ${BATCH})) do
        local enabled, pausedAt = unpack(redis.call('HMGET', '${automation(slug)}', 'enabled', 'pausedAt'))
        local state = enabled == '1' and (pausedAt and 'paused' or 'enabled') or 'disabled'
        rows[i] = {slug, enabled and state or 'deleted', redis.call('ZCARD', '${openRuns(slug)}'),
          redis.call('ZCARD', '${endedRuns(slug)}'), redis.call('ZCOUNT', '${failedRuns(slug)}', ARGV[2], '+inf')}
      end
      return rows`;
  }
}
