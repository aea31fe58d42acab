import { randomBytes } from 'node:crypto';
import { expect, test } from 'vitest';
import type { RunLogEntry } from '../../src/store/run-log.ts';
import { acceptRun, createTriggered, SUCCEEDED, startConsumer } from '../support/runs.ts';
import { openTestStore } from '../support/store.ts';

const store = openTestStore();
const { redis, keys, runLogs } = store;

const TTL_SECONDS = 3600;

function entry(data: string | Buffer, changes: Partial<RunLogEntry> = {}): RunLogEntry {
  const time = new Date('2025-01-02T03:04:05.678Z');
  return { time, attempt: 1, source: 'stdout', offset: 0, data: Buffer.from(data), ...changes };
}

test('entries come back complete and in the order in which they were appended', async () => {
  const first = [
    entry('hello\n'),
    entry('warning\n', { source: 'stderr', offset: 6, time: new Date('2025-01-02T03:04:06Z') }),
  ];
  // Workers' clocks may differ, so that a later entry can have an earlier time.
  const second = [
    entry('again\n', { source: 'orc', attempt: 2, offset: 0, time: new Date('2025-01-01T00:00:00Z') }),
  ];
  await runLogs.append('run_order', first, [], TTL_SECONDS);
  await runLogs.append('run_order', second, [], TTL_SECONDS);
  expect((await runLogs.read('run_order')).entries).toEqual([...first, ...second]);
});

test.each([
  ['every byte there is', Buffer.from(Array.from({ length: 256 }, (_, byte) => byte))],
  ['half a character', Buffer.from('€').subarray(0, 2)],
  ['line ends and NULs', Buffer.from('\r\n\0\n')],
  ['nothing', Buffer.alloc(0)],
  ['a megabyte of random bytes', randomBytes(1_048_576)],
])('%s comes back as it was', async (name, data) => {
  await runLogs.append(`run_${name}`, [entry(data)], [], TTL_SECONDS);
  const [read] = (await runLogs.read(`run_${name}`)).entries;
  expect(read?.data.equals(data)).toBe(true);
});

test('a long log is read page by page, without a gap or a repetition', async () => {
  const lines = Array.from({ length: 450 }, (_, index) => `line ${index}`);
  const entries = lines.map((line) => entry(line));
  await runLogs.append('run_long', entries, [], TTL_SECONDS);

  const read: string[] = [];
  let pages = 0;
  let page = await runLogs.read('run_long');
  while (page.entries.length > 0) {
    pages += 1;
    read.push(...page.entries.map(({ data }) => String(data)));
    page = await runLogs.read('run_long', page.position);
  }
  expect(read).toEqual(lines);
  expect(pages).toBeGreaterThan(1);
});

test('reading on after the end brings what was appended since, and keeps its position until then', async () => {
  await runLogs.append('run_followed', [entry('one')], [], TTL_SECONDS);
  const { position } = await runLogs.read('run_followed');
  expect(await runLogs.read('run_followed', position)).toEqual({ entries: [], position });
  const second = entry('two', { offset: 3 });
  await runLogs.append('run_followed', [second], [], TTL_SECONDS);
  expect((await runLogs.read('run_followed', position)).entries).toEqual([second]);
});

test('the positions that appending returns remove exactly their entries', async () => {
  const entries = [entry('one'), entry('two', { offset: 3 }), entry('three', { offset: 6 })];
  const [, second = ''] = await runLogs.append('run_cut', entries, [], TTL_SECONDS);
  const positions = await runLogs.append('run_cut', [entry('four', { offset: 11 })], [second], TTL_SECONDS);
  expect(positions).toHaveLength(1);
  const { entries: left, position } = await runLogs.read('run_cut');
  expect(left.map(({ data }) => String(data))).toEqual(['one', 'three', 'four']);
  expect(position).toBe(positions[0]);
});

test('what is sent again, because its answer was lost, is not appended again', async () => {
  const entries = [entry('one'), entry('', { offset: 3 }), entry('two', { offset: 3, source: 'stderr' })];
  const next = [entry('one', { attempt: 2 })];
  for (const batch of [entries, entries, next, next]) {
    await runLogs.append('run_resent', batch, [], TTL_SECONDS);
  }
  // After a backup was restored, there can be an attempt of the same number again.
  const later = [entry('one', { attempt: 2, time: new Date('2025-01-02T04:00:00Z') })];
  await runLogs.append('run_resent', later, [], TTL_SECONDS);
  expect((await runLogs.read('run_resent')).entries).toEqual([...entries, ...next, ...later]);
});

test('more entries than are appended in one step come back in order', async () => {
  const entries = Array.from({ length: 1234 }, (_, index) => entry('x', { offset: index }));
  const positions = await runLogs.append('run_many', entries, [], TTL_SECONDS);
  expect(positions).toHaveLength(entries.length);
  expect(await runLogs.list('run_many')).toEqual(
    positions.map((position) => ({ position, attempt: 1, bytes: 1 })),
  );
});

test('a log that was never written is empty', async () => {
  expect(await runLogs.read('run_silent')).toEqual({ entries: [], position: undefined });
});

test('a log ends its time after its last entry', async () => {
  const key = keys.runLog('run_kept');
  await runLogs.append('run_kept', [entry('one')], [], 60);
  expect(await redis.ttl(key)).toBeGreaterThan(0);
  expect(await redis.ttl(key)).toBeLessThanOrEqual(60);
  await runLogs.append('run_kept', [entry('two', { offset: 3 })], [], TTL_SECONDS);
  expect(await redis.ttl(key)).toBeGreaterThan(60);
});

test('appending to what is not a log fails instead of losing the entries in silence', async () => {
  await redis.set(keys.runLog('run_broken'), 'not a stream');
  await expect(runLogs.append('run_broken', [entry('lost')], [], TTL_SECONDS)).rejects.toThrow('WRONGTYPE');
});

test.each([
  ['short', 3, true],
  ['long', 30, false],
])(
  'a %s log keeps its entries and its time when its run ends; if short, no room for more',
  async (slug, count, isPacked) => {
    const automation = await createTriggered(store, slug);
    const runId = await acceptRun(store, automation);
    const key = keys.runLog(runId);
    const usage = async () => Number(await redis.memory('USAGE', key, 'SAMPLES', 0));
    const entries = Array.from({ length: count }, (_, offset) => entry('x', { offset }));
    let usageBefore = 0;
    startConsumer(store, async () => {
      await runLogs.append(runId, entries, [], TTL_SECONDS);
      usageBefore = await usage();
      return SUCCEEDED;
    });
    await expect.poll(() => redis.zcard(keys.endedRuns(slug))).toBe(1);
    expect(usageBefore).toBeGreaterThan(4096);
    expect((await usage()) < 1000).toBe(isPacked);
    expect((await runLogs.read(runId)).entries).toEqual(entries);
    expect(await redis.ttl(key)).toBeGreaterThan(TTL_SECONDS / 2);
    expect(await redis.exists(keys.packedLog)).toBe(0);

    // A worker that has lost the run may still write.
    const late = entry('late', { offset: count, time: new Date('2025-01-03T00:00:00Z') });
    await runLogs.append(runId, [late], [], TTL_SECONDS);
    expect((await runLogs.read(runId)).entries).toEqual([...entries, late]);
  },
);
