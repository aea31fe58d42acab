import { writeFileSync } from 'node:fs';
import { expect, inject, test } from 'vitest';
import { connect } from '../../src/store/connect.ts';
import type { RunLogEntry } from '../../src/store/run-log.ts';
import { createStore } from '../../src/store/store.ts';
import { OutputLog } from '../../src/worker/output-log.ts';
import { command, script } from '../support/store.ts';
import { bytesOf, eventually, NO_MASK, newAttempt, openFolder, openWorkbench, readLog } from './workbench.ts';

const { store, run } = openWorkbench();
const folder = openFolder();

/** What one attempt's log may hold of output, in bytes: a head and a tail, and the pieces in which they came. */
const LOG_LIMIT_BYTES = 1024 * 1024 + 2 * 64 * 1024;

test('what a command prints is kept by source, in the order in which it came', async () => {
  const made = newAttempt({ attempt: 2 });
  const gate = folder('order');
  // Two pipes have no common order of their own, so each line waits until the one before it is seen.
  const source = `
    echo one; while [ ! -e "$1-1" ]; do sleep 0.02; done
    echo two >&2; while [ ! -e "$1-2" ]; do sleep 0.02; done
    printf 'three without an end'`;
  const running = run(command('sh', '-c', source, 'sh', gate), { run: made });
  const log = () => readLog(store, made.id);
  await eventually(async () => (await log()).stdout).toBe('one\n');
  writeFileSync(`${gate}-1`, '');
  await eventually(async () => (await log()).stderr).toBe('two\n');
  writeFileSync(`${gate}-2`, '');
  const { entries } = await running;
  expect(entries.map(({ attempt, source, offset, data }) => [attempt, source, offset, String(data)])).toEqual(
    [
      [2, 'stdout', 0, 'one\n'],
      [2, 'stderr', 4, 'two\n'],
      [2, 'stdout', 8, 'three without an end'],
    ],
  );
  const times = entries.map(({ time }) => time.getTime());
  expect(times).toEqual([...times].sort((left, right) => left - right));
  expect(Math.abs(Date.now() - (times[0] ?? 0))).toBeLessThan(60_000);
});

test('what comes at the same time is not mixed up', async () => {
  const source = `for (let i = 0; i < 100; i++) {
    require('node:fs').writeSync(1, 'out' + i + ' ');
    require('node:fs').writeSync(2, 'err' + i + ' ');
  }`;
  const { stdout, stderr } = await run(script(source));
  const each = (word: string) => Array.from({ length: 100 }, (_, i) => `${word}${i} `).join('');
  expect([stdout, stderr]).toEqual([each('out'), each('err')]);
});

test('output below the limit is kept completely, whatever the sizes of its pieces', async () => {
  const source = `
    const { writeSync } = require('node:fs');
    let text = '';
    for (let line = 0; line < 20000; line++) text += line + ' 😀\\n';
    const data = Buffer.from(text);
    for (let at = 0, size = 1; at < data.length; at += size, size = size * 2 % 65521) {
      for (let rest = data.subarray(at, at + size); rest.length > 0;) rest = rest.subarray(writeSync(1, rest));
    }`;
  const { stdout } = await run(script(source));
  expect(stdout).toBe(Array.from({ length: 20_000 }, (_, line) => `${line} 😀\n`).join(''));
});

test('binary output is kept byte for byte', async () => {
  const everyByte = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));
  const source = 'process.stdout.write(Buffer.from(Array.from({ length: 256 }, (_, byte) => byte)))';
  const { entries } = await run(script(source));
  expect(bytesOf(entries, 'stdout').equals(everyByte)).toBe(true);
});

test('of 5 MB of output, the beginning and the end are kept and the gap between them shows', async () => {
  const source = `
    for (let line = 0; line < 50000; line++) {
      require('node:fs').writeSync(1, String(line).padStart(99) + '\\n');
    }`;
  const { run: made, entries } = await run(script(source));
  const stored = await store.redis.memory('USAGE', store.keys.runLog(made.id), 'SAMPLES', 0);
  expect(Number(stored)).toBeLessThan(1.5 * LOG_LIMIT_BYTES);
  const kept = entries.reduce((sum, { data }) => sum + data.length, 0);
  expect(kept).toBeLessThanOrEqual(LOG_LIMIT_BYTES);

  const gapAt = entries.findIndex(({ offset }, index) => offset > endOf(entries[index - 1]));
  const [head, tail] = [entries.slice(0, gapAt), entries.slice(gapAt)];
  expect(lineNumbers(head).slice(0, 5000)).toEqual(Array.from({ length: 5000 }, (_, line) => line));
  expect(lineNumbers(tail).slice(-4000)).toEqual(Array.from({ length: 4000 }, (_, line) => 46_000 + line));
  // All that is missing is missing in one place, and the offsets say how much it is.
  const gap = (tail[0]?.offset ?? 0) - endOf(head.at(-1));
  expect(kept + gap).toBe(5_000_000);
  for (const part of [head, tail]) {
    for (const [index, entry] of part.entries()) {
      if (index > 0) expect(entry.offset).toBe(endOf(part[index - 1]));
    }
  }
});

function endOf(entry: RunLogEntry | undefined): number {
  return entry ? entry.offset + entry.data.length : 0;
}

function lineNumbers(entries: RunLogEntry[]): number[] {
  return bytesOf(entries, 'stdout').toString().trimEnd().split('\n').map(Number);
}

test('a log ends some time after its last entry', async () => {
  const { run: made } = await run(command('echo', 'hello'));
  const ttl = await store.redis.ttl(store.keys.runLog(made.id));
  expect(ttl).toBeGreaterThan(0);
  expect(ttl).toBeLessThanOrEqual(60);
});

test('a Redis that takes no log does not keep a command from succeeding', async () => {
  const redis = connect(inject('redisUrl'), 'fail-fast', () => undefined);
  redis.disconnect();
  const { runLogs } = createStore(redis, 'unused', () => undefined);
  const { result, entries } = await run(command('echo', 'hello'), { runLogs });
  expect(result).toMatchObject({ outcome: { status: 'succeeded' } });
  expect(entries).toEqual([]);
});

test.each([
  ['first', 1],
  ['repeated', 2],
])(
  'what asks over the same connection after the log of a %s attempt was sent finds it complete',
  async (_, attempt) => {
    const made = newAttempt({ attempt });
    const log = new OutputLog(store.runLogs, made, 60, NO_MASK);
    log.note('one');
    await log.send();
    // The first is on its way at the most.
    log.note('two');
    log.note('three');
    await log.send();
    expect((await readLog(store, made.id)).notes).toBe('one\ntwo\nthree\n');
  },
);

test('the log of a run is bounded over all its attempts, and the end of each shows what is missing of it', async () => {
  const made = newAttempt();
  const log = async (attempt: number, bytes: number) => {
    const part = new OutputLog(store.runLogs, { id: made.id, attempt }, 60, NO_MASK);
    for (let written = 0; written < bytes; written += 1000) part.write('stdout', Buffer.alloc(1000, attempt));
    part.note(`end of ${attempt}`);
    await part.flush();
  };
  for (const attempt of [1, 2, 3]) await log(attempt, 400_000);
  await log(4, 50_000);
  const { entries } = await readLog(store, made.id);
  const kept = entries.reduce((sum, { data }) => sum + data.length, 0);
  expect(kept).toBeLessThanOrEqual(1024 * 1024);
  expect(kept).toBeGreaterThan(900_000);
  const stdoutOf = (attempt: number) =>
    bytesOf(
      entries.filter((entry) => entry.attempt === attempt),
      'stdout',
    ).length;
  // The head is the first attempt and a part of the second; the tail is the fourth and as much of the others as fits.
  expect([stdoutOf(1), stdoutOf(4)]).toEqual([400_000, 50_000]);
  expect(stdoutOf(2)).toBeLessThan(400_000);
  for (const attempt of [1, 2, 3, 4]) {
    const last = entries.filter((entry) => entry.attempt === attempt).at(-1);
    expect([last?.source, last?.offset]).toEqual(['orc', attempt === 4 ? 50_000 : 400_000]);
  }
});

test('output that is not stored yet is bounded as well, whatever the sizes of its pieces', async () => {
  const made = newAttempt();
  const log = new OutputLog(store.runLogs, made, 60, NO_MASK);
  const tiny = Buffer.from('.');
  // The two sources alternate, so that no two pieces are joined; nothing is stored meanwhile.
  for (let piece = 0; piece < 1_000_000; piece++) log.write(piece % 2 === 0 ? 'stdout' : 'stderr', tiny);
  await log.flush();
  const { entries } = await readLog(store, made.id);
  expect(entries.length).toBeLessThan((1024 * 1024) / 64);
  expect(entries.at(-1)?.offset).toBe(999_999);
});
