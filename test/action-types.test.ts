import { writeFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { type Static, Type } from '@sinclair/typebox';
import { Option } from 'commander';
import { afterAll, expect, test, vi } from 'vitest';
import { readConfig } from '../src/config.ts';
import type { ActionType } from '../src/core/actions/action-type.ts';
import { createLogger } from '../src/logger.ts';
import type { ActionSettings, Performer } from '../src/worker/actions/action.ts';
import { acceptRun, untilStatus } from './support/runs.ts';
import { openTestStore } from './support/store.ts';
import { openFolder } from './worker/workbench.ts';

// What a file of src/core/actions would hold.

interface SleepAction {
  type: 'sleep';
  ms: number;
}

const fields = {
  sleep: Type.Integer({ minimum: 1 }),
  dream: Type.String(),
};

const sleep: ActionType<SleepAction, typeof fields> = {
  nouns: { one: 'a nap', many: 'naps' },
  fields,
  expected: { sleep: 'a number of milliseconds', dream: 'text' },
  fromEntry: ({ sleep: ms = 0 }: Partial<Static<ReturnType<typeof Type.Object<typeof fields>>>>) => ({
    type: 'sleep',
    ms,
  }),
  toEntry: ({ ms }) => ({ sleep: ms }),
  describe: ({ ms }) => [['sleep', `for ${ms} ms`]],
  masked: (action) => action,
  isSigned: true,
  secretsOf: () => [],
};

// What a file of src/worker/actions would hold.

const openNaps = ({ config }: ActionSettings): Performer<SleepAction> => ({
  perform: async ({ ms }, { run, log, signingSecrets }) => {
    await delay(ms);
    log.note(`secret ${signingSecrets}, payload ${run.payload}`);
    const message = `Slept for ${ms} ms with orc ${config.version}.`;
    return { outcome: { status: 'succeeded', reason: 'exit_code', message }, mayRetry: false };
  },
});

// Other files share this process and its modules: what follows is loaded for this file alone.
vi.resetModules();
afterAll(() => vi.resetModules());

// A line in each of the two lists, and one in that of the command line's options.
const { ACTION_TYPES } = await import('../src/core/actions/actions.ts');
const { PERFORMERS } = await import('../src/worker/actions/actions.ts');
Object.assign(ACTION_TYPES, { sleep });
Object.assign(PERFORMERS, { sleep: openNaps });
const { AUTOMATION_OPTIONS } = await import('../src/cli/automation-options.ts');
Object.assign(AUTOMATION_OPTIONS, [...AUTOMATION_OPTIONS, new Option('--sleep <ms>').argParser(Number)]);

const { readAutomationFile, schemaText } = await import('../src/cli/automation-file.ts');
const { runOrc } = await import('./support/orc.ts');
const { startWorker } = await import('../src/worker/start-worker.ts');

const store = openTestStore();
const folder = openFolder();
const config = readConfig({ ...store.env, ORC_VERSION: '1.2.3-test' });

/** What a command of `orc` prints. */
async function orc(...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await runOrc(args, { env: store.env });
  expect([code, stderr]).toEqual([0, '']);
  return stdout;
}

const worker = startWorker(config, config.REDIS_URL ?? '', createLogger('silent', 'worker'));
afterAll(() => worker.close(0));

test('a type of action is its two files and its options: created, shown, exported, applied and executed', async () => {
  const created = JSON.parse(await orc('automations', 'create', 'nap', '--sleep', '20', '--json'));
  expect(created.automation.action).toEqual({ type: 'sleep', ms: 20 });
  expect(created.signingSecret).toMatch(/^whsec_/);
  expect(await orc('automations', 'list')).toMatch(/^nap +enabled +for 20 ms/m);
  expect(await orc('automations', 'show', 'nap')).toMatch(/^sleep +for 20 ms$/m);

  const exported = await orc('export');
  expect(exported).toContain('automations:\n  nap:\n    sleep: 20\n');
  const file = folder('automations.yaml');
  writeFileSync(file, exported);
  expect(await orc('apply', '--file', file)).toContain('There is nothing to change.');
  writeFileSync(file, exported.replace('20', '30'));
  expect(await orc('apply', '--file', file)).toMatch(/^change +nap +sleep: 20 → 30$/m);

  await worker.ready;
  const opened = await store.automations.open('nap');
  if (opened.status !== 'authenticated') throw new Error(opened.status);
  const runId = await acceptRun(store, opened.automation, '{"a":1}');
  await untilStatus(store, runId, 'succeeded');
  expect((await store.runs.get(runId))?.outcome?.message).toBe('Slept for 30 ms with orc 1.2.3-test.');
  const { entries } = await store.runLogs.read(runId);
  const notes = Buffer.concat(entries.map(({ data }) => data)).toString();
  expect(notes).toContain('secret whsec_***, payload {"a":1}\n');
});

test('the schema of a file and what is wrong with one name the fields of all types', () => {
  expect(JSON.parse(schemaText())).toHaveProperty(
    ['properties', 'automations', 'patternProperties'],
    expect.toSatisfy((slugs) => JSON.stringify(slugs).includes('{"required":["sleep"]}')),
  );
  const wrong = `automations:
  a: {sleep: soon}
  b: {sleep: 5, command: [x]}
  c: {command: [x], dream: sheep}
  d: {}
`;
  expect(() => readAutomationFile(wrong, 'f.yaml')).toThrow(
    [
      "f.yaml:2: a.sleep must be a number of milliseconds, not 'soon'",
      'f.yaml:3: b.sleep cannot be combined with a command',
      'f.yaml:4: c.dream is for naps only and cannot be combined with a command',
      'f.yaml:5: d needs a command, an agent, a url or a sleep',
    ].join('\n'),
  );
});

test('an action of a newer version is refused in words and not taken for another', async () => {
  await orc('automations', 'create', 'later', '--sleep', '5', '--json');
  await store.redis.hset(store.keys.automation('later'), 'action', '{"type":"teleport"}');
  await worker.ready;
  const opened = await store.automations.open('later');
  if (opened.status !== 'authenticated') throw new Error(opened.status);
  const runId = await acceptRun(store, opened.automation, '{}');
  await untilStatus(store, runId, 'failed');
  expect((await store.runs.get(runId))?.outcome).toMatchObject({
    reason: 'worker_error',
    message: expect.stringContaining("no actions of the type 'teleport'; use a newer one"),
  });
});
