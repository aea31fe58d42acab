import type { Command } from 'ioredis';
import { expect, onTestFinished, test } from 'vitest';
import { EventStream } from '../../../src/console/live/event-stream.ts';
import { RunFeeds } from '../../../src/console/live/run-feed.ts';
import { acceptRun, createTriggered, HeldAttempts, startConsumer } from '../../support/runs.ts';
import { openTestStore } from '../../support/store.ts';

/** What one reader was sent. */
class Reader {
  readonly stream = new EventStream();
  text = '';
  isOver = false;

  constructor(feeds: RunFeeds, runId: string, after?: string, isReading = true, mayGoOn = async () => true) {
    feeds.watch(runId, after, this.stream, mayGoOn);
    if (isReading) this.read();
    onTestFinished(() => this.stream.end());
  }

  read() {
    this.stream.body.setEncoding('utf8');
    this.stream.body.on('data', (chunk: string) => {
      this.text += chunk;
    });
    this.stream.body.on('end', () => {
      this.isOver = true;
    });
  }

  /** The log as far as it came. */
  get log(): string {
    const pieces = this.events('log') as [number, number, string, number, string][][];
    return pieces
      .flat()
      .map(([, , , , data]) => Buffer.from(data, 'base64').toString())
      .join('');
  }

  events(name: string): unknown[] {
    const found = this.text.matchAll(new RegExp(`event: ${name}\ndata: (.*)\n`, 'g'));
    return [...found].map(([, data = '']) => JSON.parse(data));
  }

  get lastId(): string | undefined {
    return [...this.text.matchAll(/^id: (.*)$/gm)].at(-1)?.[1];
  }
}

/** A run that executes, and what watches it. */
async function startRun() {
  const store = openTestStore();
  const feeds = new RunFeeds(store, (error) => {
    throw error;
  });
  onTestFinished(() => feeds.close());
  const attempts = new HeldAttempts();
  const consumer = startConsumer(store, attempts.execute);
  const runId = await acceptRun(store, await createTriggered(store, 'deploy'));
  await attempts.untilStarted(runId);
  let offset = 0;
  const write = async (text: string) => {
    const data = Buffer.from(text);
    const entry = { time: new Date(), attempt: 1, source: 'stdout' as const, offset, data };
    offset += data.length;
    await store.runLogs.append(runId, [entry], [], 3600);
  };
  const end = async () => {
    attempts.end(runId);
    await consumer.close(5000);
  };
  return { store, feeds, runId, write, end };
}

test('a reader is sent what is there and what comes, then that the run has ended, and then the end', async () => {
  const { feeds, runId, write, end } = await startRun();
  await write('one ');
  const reader = new Reader(feeds, runId);
  await expect.poll(() => reader.log).toBe('one ');
  await write('two ');
  await expect.poll(() => reader.log).toBe('one two ');
  await write('three');
  await end();
  await expect.poll(() => reader.isOver).toBe(true);
  expect(reader.log).toBe('one two three');
  expect(reader.events('end')).toHaveLength(1);
  expect(reader.events('state').length).toBeGreaterThan(1);
});

test('who comes back with the last id is sent what follows it, once, whoever else watches', async () => {
  const { feeds, runId, write } = await startRun();
  const first = new Reader(feeds, runId);
  await write('one ');
  await expect.poll(() => first.log).toBe('one ');
  const after = first.lastId;
  first.stream.end();
  await write('two ');
  const other = new Reader(feeds, runId);
  const second = new Reader(feeds, runId, after);
  await write('three');
  await expect.poll(() => second.log).toBe('two three');
  await expect.poll(() => other.log).toBe('one two three');
});

test('a position that is not yet there hides nothing from others', async () => {
  const { feeds, runId, write } = await startRun();
  new Reader(feeds, runId, '9999999999999999-0');
  const reader = new Reader(feeds, runId);
  await write('one ');
  await expect.poll(() => reader.log).toBe('one ');
});

test('the readers whose session is ended are cut off at once, and the others go on', async () => {
  const { store, feeds, runId, write } = await startRun();
  const allowed = new Set(['ada', 'bob']);
  let asked = 0;
  const readerOf = (name: string) =>
    new Reader(feeds, runId, undefined, true, async () => {
      asked += 1;
      return allowed.has(name);
    });
  const [ada, bob] = [readerOf('ada'), readerOf('bob')];
  await expect.poll(() => asked).toBe(2);
  allowed.delete('ada');
  await store.operators.endSessions('ada');
  // Earlier than the next beat, which judges them in any case.
  await expect.poll(() => ada.isOver, { timeout: 5000 }).toBe(true);
  await write('one');
  await expect.poll(() => bob.log).toBe('one');
  expect(ada.log).toBe('');
});

test('200 readers of a run cost Redis as many commands as one', async () => {
  const { store, feeds, runId, write } = await startRun();
  const counted: string[] = [];
  const send = store.redis.sendCommand.bind(store.redis);
  store.redis.sendCommand = (command: Command, ...rest: []) => {
    const isCounted = command.getKeys().some((key) => /:log:|:ended-sessions$/.test(String(key)));
    if (isCounted) counted.push(command.name);
    return send(command, ...rest);
  };
  onTestFinished(() => {
    store.redis.sendCommand = send;
  });
  const readers = Array.from({ length: 200 }, () => new Reader(feeds, runId));
  for (let line = 0; line < 5; line++) {
    await write(`${line} `);
    await expect.poll(() => readers.every(({ log }) => log.endsWith(`${line} `))).toBe(true);
  }
  expect(readers.map(({ log }) => log)).toEqual(readers.map(() => '0 1 2 3 4 '));
  // One to find a line, one to find nothing after it, and now and then one that finds nothing at all.
  expect(counted.filter((name) => name === 'xrange').length).toBeLessThan(50);
  expect(counted.filter((name) => name === 'get').length).toBeLessThan(20);
});

test('a reader who takes nothing is cut off with what waits for him, and the others go on', async () => {
  const { feeds, runId, write } = await startRun();
  const slow = new Reader(feeds, runId, undefined, false);
  const quick = new Reader(feeds, runId);
  const piece = 'x'.repeat(100_000);
  for (let count = 1; count <= 12; count++) {
    await write(piece);
    await expect.poll(() => quick.log.length).toBe(count * piece.length);
  }
  expect(slow.stream.isOpen).toBe(false);
  slow.read();
  await expect.poll(() => slow.isOver).toBe(true);
  expect(slow.log.length).toBeLessThan(quick.log.length);
  const again = new Reader(feeds, runId, slow.lastId);
  await expect.poll(() => slow.log.length + again.log.length).toBe(quick.log.length);
});

test('the log of a run that has ended is sent to its end', async () => {
  const { feeds, runId, write, end } = await startRun();
  for (let line = 0; line < 450; line++) await write(`${line}\n`);
  await end();
  const reader = new Reader(feeds, runId);
  await expect.poll(() => reader.isOver).toBe(true);
  expect(reader.log.trim().split('\n')).toHaveLength(450);
});

test('closing ends all streams, and further ones at once', async () => {
  const { feeds, runId } = await startRun();
  const reader = new Reader(feeds, runId);
  await expect.poll(() => reader.events('state')).toHaveLength(1);
  feeds.close();
  await expect.poll(() => reader.isOver).toBe(true);
  expect(reader.events('end')).toEqual([]);
  const late = new Reader(feeds, runId);
  await expect.poll(() => late.isOver).toBe(true);
  await expect.poll(() => feeds.streams).toBe(0);
});
