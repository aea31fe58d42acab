import { randomUUID } from 'node:crypto';
import { inject, onTestFinished } from 'vitest';
import type { Action } from '../../src/core/actions/actions.ts';
import type { AutomationDefinition } from '../../src/core/automation.ts';
import { type ConnectionProfile, connect } from '../../src/store/connect.ts';
import { createStore, type Store } from '../../src/store/store.ts';
import { atEnd } from './at-end.ts';

/** A prefix that no other test uses. */
export function newPrefix(): string {
  return `test-${randomUUID()}`;
}

/** A store of the test run's Redis under a prefix of its own; closed, and its keys deleted, after the test or the file that opens it. */
export function openTestStore(prefix = newPrefix()): Store & { prefix: string; env: NodeJS.ProcessEnv } {
  const url = inject('redisUrl');
  const redis = connect(url, 'patient', () => undefined);
  const store = createStore(redis, prefix, (error) => {
    throw error;
  });
  atEnd(async () => {
    const keys = await redis.keys(`{${prefix}}*`);
    if (keys.length > 0) await redis.del(...keys);
    await store.close();
  });
  return { ...store, prefix, env: { REDIS_URL: url, REDIS_PREFIX: prefix } };
}

/** A store at any Redis; who opens it closes it, and learns of errors by what does not work. */
export function connectStore(url: string, profile: ConnectionProfile, prefix: string): Store {
  return createStore(
    connect(url, profile, () => undefined),
    prefix,
    () => undefined,
  );
}

/** A store at a Redis that a test starts and stops itself; closed when the test has ended. */
export function openStoreAt(url: string, profile: ConnectionProfile, prefix = newPrefix()): Store {
  const store = connectStore(url, profile, prefix);
  onTestFinished(() => store.close());
  return store;
}

/** A definition with everything that does not matter to a test filled in. */
export function definition(slug: string, changes: Partial<AutomationDefinition> = {}): AutomationDefinition {
  return {
    slug,
    name: '',
    enabled: true,
    action: command('true'),
    attempts: 1,
    onWorkerLoss: 'rerun',
    ...changes,
  };
}

export function command(...argv: string[]): Action {
  return { type: 'command', argv, env: {}, passEnv: [] };
}

/** A command that runs JavaScript in this Node. */
export function script(source: string): Action {
  return command(process.execPath, '-e', source);
}

/** Creates an automation and returns its key. */
export async function createAutomation(
  store: Store,
  slug: string,
  changes: Partial<AutomationDefinition> = {},
): Promise<string> {
  const created = await store.automations.create(definition(slug, changes));
  if (created.status !== 'created') throw new Error(`${slug} exists`);
  return created.apiKey;
}
