import { beforeAll, describe, expect, test } from 'vitest';
import { findRunId } from '../../src/cli/run-reference.ts';
import { shortRunId } from '../../src/core/run.ts';
import { runOrc } from '../support/orc.ts';
import { acceptRun, acceptWithId, createTriggered } from '../support/runs.ts';
import { createAutomation, openTestStore } from '../support/store.ts';

const store = openTestStore();
const OLD = 'run_0195a2c4-7b1e-7f3a-9c5d-2e8f4a6b1c3d';
const SAME_SHORT = 'run_0195a2c4-7b1e-7f3a-aaaa-2e8f4a6b1c3d';
const OTHER = 'run_0195a2c4-7b1f-7000-9c5d-2e8f4a6b1c3d';

beforeAll(async () => {
  const automation = await createTriggered(store, 'deploy');
  for (const id of [OLD, SAME_SHORT]) await acceptWithId(store, automation, id);
  await acceptWithId(store, await createTriggered(store, 'report'), OTHER, '{"n": 1e400, "a":"€"}');
  await createAutomation(store, 'unused');
});

describe('a run is found by', () => {
  test.each([
    ['its id', OTHER, OTHER],
    ['its id without run_', OTHER.slice(4), OTHER],
    ['its short form', shortRunId(OTHER), OTHER],
    ['any beginning that no other run has', 'run_0195a2c4-7b1f', OTHER],
    ['a beginning in capital letters', '0195A2C4-7B1F', OTHER],
    ['one letter more than another run has', `${shortRunId(OLD)}-9`, OLD],
  ])('%s', async (_, reference, runId) => {
    expect(await findRunId(store, reference, {})).toBe(runId);
  });

  test('--last, which is the latest one of all or of an automation', async () => {
    expect(await findRunId(store, undefined, { last: true })).toBe(OTHER);
    expect(await findRunId(store, undefined, { last: 'deploy' })).toBe(SAME_SHORT);
  });
});

test('the short form of an id is its first three groups', () => {
  expect(shortRunId(OLD)).toBe('0195a2c4-7b1e-7f3a');
});

test('a beginning that several runs have names them', async () => {
  const { code, stderr } = await runOrc(['runs', 'show', '0195a2c4-7b1e-7f3a'], { env: store.env });
  expect(code).toBe(1);
  expect(stderr).toContain('orc: Several runs begin with "0195a2c4-7b1e-7f3a":\n');
  for (const id of [OLD, SAME_SHORT])
    expect(stderr).toMatch(new RegExp(`^  ${id}  deploy  queued  (now|\\d+ s ago)$`, 'm'));
  expect(stderr).not.toContain(OTHER);
  expect(stderr).toMatch(/^Write more of the id\.$/m);
});

test('a beginning that many runs have names five of them', async () => {
  const many = openTestStore();
  const automation = await createTriggered(many, 'many');
  for (let count = 0; count < 8; count += 1) await acceptRun(many, automation);
  const { stderr } = await runOrc(['runs', 'logs', 'run_0'], { env: many.env });
  expect(stderr.match(/^ {2}run_/gm)).toHaveLength(5);
  expect(stderr).toMatch(/^ {2}and more$/m);
});

test.each([
  [['0195a2c4-9'], 1, 'There is no run "0195a2c4-9".'],
  [['run_unknown'], 1, 'There is no run "run_unknown".'],
  [['*'], 1, 'There is no run "*".'],
  [[''], 1, 'There is no run "".'],
  [['--last', 'unused'], 1, 'There are no runs of unused.'],
  [['--last', 'unusd'], 1, 'There is no automation "unusd". Did you mean unused?'],
  [[OLD, '--last'], 2, "Give either a run's id or --last"],
  [[], 2, "missing required argument 'runId', or --last"],
])('show %j exits with %i', async (args, code, sentence) => {
  const shown = await runOrc(['runs', 'show', ...args], { env: store.env });
  expect([shown.code, shown.stdout]).toEqual([code, '']);
  expect(shown.stderr).toContain(sentence);
});

test.each(['show', 'logs', 'payload', 'cancel'])(
  '%s takes the beginning of an id, and --last',
  async (verb) => {
    for (const args of [[shortRunId(OTHER)], ['--last', 'report'], ['--last']]) {
      expect([args, (await runOrc(['runs', verb, ...args], { env: store.env })).code]).toEqual([args, 0]);
    }
  },
);

test('payload prints the bytes as they were received, and as JSON without a change of a number', async () => {
  const payload = (...args: string[]) => runOrc(['runs', 'payload', OTHER, ...args], { env: store.env });
  expect((await payload()).stdout).toBe('{"n": 1e400, "a":"€"}');
  expect((await payload('--json')).stdout).toBe(`{"runId":"${OTHER}","payload":{"n": 1e400, "a":"€"}}\n`);
});
