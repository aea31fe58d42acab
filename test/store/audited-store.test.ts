import { expect, test } from 'vitest';
import { describeAction, describeDetails } from '../../src/core/audit.ts';
import { MAX_ENTRIES } from '../../src/store/audit.ts';
import { auditedStore, readingStore } from '../../src/store/audited-store.ts';
import { newRunId } from '../../src/store/run-id.ts';
import type { Store } from '../../src/store/store.ts';
import { command, definition, newPrefix, openTestStore } from './../support/store.ts';

const plain = openTestStore();
const fail = (error: unknown) => {
  throw error;
};
const store = auditedStore(plain, { user: 'root', host: 'web-1' }, fail);

/** The latest entries in words, the latest first. */
async function latest(limit: number, of: Store = plain): Promise<string[]> {
  const entries = await of.audit.list({ limit });
  return entries.map((entry) => `${describeAction(entry)} (${describeDetails(entry)})`);
}

const limits = () => ({ endsAt: Date.now() + 5000, maxQueuedRuns: 100 });

test('each change of an automation is recorded once, with what was before and after, and without secrets', async () => {
  const action = { ...command('deploy', '--to', 'prod'), env: { TOKEN: 'hunter2-hunter2' } };
  const before = definition('deploy', {
    action,
    onEnd: 'https://ada:hunter2-hunter2@example.com/?key=hunter2-hunter2',
  });
  await store.automations.create(before);
  await store.automations.create(before);
  await store.automations.setEnabled('deploy', false);
  await store.automations.setEnabled('deploy', false);
  await store.automations.setEnabled('deploy', true);
  await store.automations.setPaused('deploy', true);
  await store.automations.setPaused('deploy', false);
  const seen = await store.automations.get('deploy');
  if (!seen) throw new Error('it is there');
  const changed = { ...before, attempts: 3, action: { ...action, env: { TOKEN: 'hunter3-hunter3' } } };
  await store.automations.replace(seen, changed);
  expect(await store.automations.replace(seen, changed)).toEqual({ status: 'conflict' });
  const key = await store.automations.rotateKey('deploy', 0);
  const secret = await store.automations.rotateSecret('deploy', 0);
  await store.automations.delete('deploy');
  await store.automations.delete('deploy');

  expect(await latest(20)).toEqual([
    'deleted automation deploy (command: ["deploy","--to","prod"], env.TOKEN, attempts: 3, onEnd: https://***@example.com/?key=***)',
    'issued a new signing secret for automation deploy (the old one is invalid)',
    'issued a new key for automation deploy (the old one is invalid)',
    'changed automation deploy (attempts: default → 3, env.TOKEN: another value)',
    'resumed automation deploy ()',
    'paused automation deploy ()',
    'enabled automation deploy ()',
    'disabled automation deploy ()',
    'created automation deploy (command: ["deploy","--to","prod"], env.TOKEN, onEnd: https://***@example.com/?key=***)',
  ]);
  const stored = JSON.stringify(await plain.audit.list({ limit: 20 }));
  for (const text of [
    'hunter',
    (key as { apiKey: string }).apiKey,
    (secret as { signingSecret: string }).signingSecret,
  ]) {
    expect(stored).not.toContain(text);
  }
});

test('an entry says who and when', async () => {
  const start = Date.now();
  await store.operators.add('eve', 'viewer');
  const [entry] = await plain.audit.list({ limit: 1 });
  expect(entry).toMatchObject({
    by: { user: 'root', host: 'web-1' },
    action: 'operator.add',
    subject: 'eve',
  });
  expect(Math.abs((entry?.at.getTime() ?? 0) - start)).toBeLessThan(60_000);
});

test('runs that are started, cancelled and repeated are recorded', async () => {
  await plain.automations.create(definition('ping'));
  const opened = await store.automations.open('ping');
  if (opened.status !== 'authenticated') throw new Error(opened.status);
  const run = { id: newRunId(), payload: '{"secret":"hunter2"}', requestId: 'r' };
  await store.runs.accept(opened.automation, run, limits());
  await store.runs.cancel(run.id);
  await store.runs.cancel(run.id);
  const retried = await store.runs.retry(run.id, opened.automation, limits());
  expect(await latest(3)).toEqual([
    `repeated run ${run.id} (as ${(retried as { runId: string }).runId})`,
    `cancelled run ${run.id} ()`,
    `started run ${run.id} (of ping)`,
  ]);
});

test('of many runs that one command changes, twenty are named and the others counted', async () => {
  const other = openTestStore(newPrefix());
  const bulk = auditedStore({ ...other, close: async () => undefined }, { operator: 'ada' }, fail);
  await bulk.automations.create(definition('ping'));
  const opened = await bulk.automations.open('ping');
  if (opened.status !== 'authenticated') throw new Error(opened.status);
  for (let count = 0; count < 25; count += 1) {
    await bulk.runs.accept(opened.automation, { id: newRunId(), payload: '{}', requestId: 'r' }, limits());
  }
  await bulk.close();
  expect(await other.audit.list({ limit: 50 })).toHaveLength(22);
  expect(await latest(1, other)).toEqual(['started runs: 5 more ()']);
});

test('operators, their links, logins and removal are recorded, without tokens', async () => {
  await store.operators.add('ada', 'admin');
  await store.operators.add('ada', 'admin');
  const link = await store.operators.createLink('ada');
  const session = await store.operators.login(link?.token ?? '', { address: '10.0.0.1', userAgent: 'x' });
  await store.operators.endSessions('ada');
  await store.operators.remove('ada');
  expect(await latest(5)).toEqual([
    'removed operator ada ()',
    'ended the sessions of operator ada ()',
    'logged in as operator ada (from 10.0.0.1)',
    'made a login link for operator ada ()',
    'added operator ada (role: admin)',
  ]);
  const stored = JSON.stringify(await plain.audit.list({ limit: 5 }));
  expect(stored).not.toContain(link?.token);
  expect(stored).not.toContain(session?.token);
});

test('an entry is in the log before its change, and one of a change that is refused is taken back', async () => {
  const seen: string[][] = [];
  const look = async () => {
    seen.push(await latest(1));
    throw new Error('killed');
  };
  const operators = Object.assign(Object.create(plain.operators), { add: look, remove: async () => false });
  const dying = auditedStore({ ...plain, operators }, { operator: 'ada' }, fail);
  await expect(dying.operators.add('kim', 'viewer')).rejects.toThrow('killed');
  expect(seen).toEqual([['added operator kim (role: viewer)']]);
  expect(await dying.operators.remove('kim')).toBe(false);
  expect(await latest(1)).toEqual(['added operator kim (role: viewer)']);
});

test('a change that Redis takes without its entry succeeds, and the caller is told', async () => {
  const problems: unknown[] = [];
  const broken = { ...plain, audit: { append: () => Promise.reject(new Error('OOM')) } } as unknown as Store;
  const added = await auditedStore(broken, { operator: 'ada' }, (error) =>
    problems.push(error),
  ).operators.add('zoe', 'viewer');
  expect(added).toBe(true);
  expect(problems).toEqual([new Error('OOM')]);
});

test('long values are cut, and the log keeps its latest entries only', async () => {
  await store.automations.create(definition('long', { action: command('x'.repeat(5000)) }));
  const [entry] = await plain.audit.list({ limit: 1 });
  expect(JSON.stringify(entry).length).toBeLessThan(600);

  const pipeline = plain.redis.pipeline();
  for (let count = 0; count < MAX_ENTRIES + 1000; count += 1) {
    pipeline.xadd(plain.keys.audit, 'MAXLEN', '~', MAX_ENTRIES, '*', 'record', '{}');
  }
  await pipeline.exec();
  await store.operators.add('last', 'viewer');
  const length = await plain.redis.xlen(plain.keys.audit);
  expect(length).toBeGreaterThanOrEqual(MAX_ENTRIES);
  expect(length).toBeLessThan(MAX_ENTRIES + 500);
  expect(await latest(1)).toEqual(['added operator last (role: viewer)']);
});

test('entries are read in pages, and from a time on', async () => {
  const other = openTestStore(newPrefix());
  for (const name of ['a', 'b', 'c']) {
    await other.audit.append({ action: 'operator.add', subject: name, by: { operator: 'ada' } });
  }
  const [last, second] = await other.audit.list({ limit: 2 });
  expect([last?.subject, second?.subject]).toEqual(['c', 'b']);
  const older = await other.audit.list({ limit: 2, before: second?.id });
  expect(older.map(({ subject }) => subject)).toEqual(['a']);
  expect(await other.audit.list({ limit: 2, since: new Date(Date.now() + 60_000) })).toEqual([]);
});

test('the store for pages reads, and refuses every change', async () => {
  const reading = readingStore(plain);
  expect(await reading.automations.get('nothing')).toBeUndefined();
  expect(() => reading.automations.delete('ping')).toThrow('by the store of the request');
  expect(() => reading.runs.cancel('run_x')).toThrow('by the store of the request');
  expect(() => reading.operators.add('x', 'admin')).toThrow('by the store of the request');
});

test('every function of the store whose name is a change is recorded, or known as no change by a person', () => {
  const CHANGE =
    /^(accept|add|apply|begin|cancel|change|clear|copy|create|delete|disable|enable|end(?!ed)|finish|give|import|issue|login|make|move|note|pause|put|release|remove|rename|replace|resume|retry|revoke|rotate|set|start(?!Times)|stop|trigger|update)/;
  /** What workers do, and a logout. */
  const UNRECORDED = ['begin', 'giveBack', 'note', 'finish', 'endSession'];
  for (const group of ['automations', 'runs', 'operators'] as const) {
    const names = Object.getOwnPropertyNames(Object.getPrototypeOf(plain[group]));
    const isRecorded = (name: string) => Reflect.get(readingStore(plain)[group], name).name === 'refuse';
    const changes = names.filter((name) => CHANGE.test(name) && !UNRECORDED.includes(name));
    expect(changes.filter((name) => !isRecorded(name))).toEqual([]);
    expect(changes.length).toBeGreaterThan(2);
  }
});
