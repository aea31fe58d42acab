import { expect, test } from 'vitest';
import type { ArtifactList } from '../../src/core/artifact.ts';
import { acceptRun, createTriggered, SUCCEEDED, startConsumer, untilStatus } from '../support/runs.ts';
import { openTestStore } from '../support/store.ts';

const store = openTestStore();
const { artifacts, keys, redis } = store;

/** A list of one artifact with these bytes, which the store does not check. */
function listOf(name: string, data: Buffer): [ArtifactList, Buffer[]] {
  const artifact = { name, bytes: data.length, sha256: 'hash' };
  return [{ artifacts: [artifact], omitted: [], omittedCount: 0 }, [data]];
}

const NOTHING: ArtifactList = { artifacts: [], omitted: [], omittedCount: 0 };

async function bytesOf(runId: string, name: string): Promise<Buffer | undefined> {
  const opened = await artifacts.open(runId, name);
  if (!opened) return undefined;
  const chunks: Buffer[] = [];
  for await (const chunk of opened.chunks) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/** Has a run executed whose attempts do this before they end. */
async function executed(slug: string, act: (runId: string) => Promise<unknown>): Promise<string> {
  const runId = await acceptRun(store, await createTriggered(store, slug));
  const consumer = startConsumer(store, async ({ id }) => {
    await act(id);
    return SUCCEEDED;
  });
  await untilStatus(store, runId, 'succeeded');
  await consumer.close(1000);
  return runId;
}

test('an artifact is read piece by piece, byte for byte, with its list', async () => {
  const data = Buffer.from(Array.from({ length: 600_000 }, (_, index) => (index * 7) % 256));
  const runId = await executed('large', (id) =>
    artifacts.save({ id, attempt: 1 }, ...listOf('a/\u001b[2J', data), 60),
  );
  expect(await artifacts.list(runId)).toEqual({ attempt: 1, ...listOf('a/\u001b[2J', data)[0] });
  expect((await bytesOf(runId, 'a/\u001b[2J'))?.equals(data)).toBe(true);
  expect(await bytesOf(runId, 'list')).toBeUndefined();
  expect(await redis.ttl(keys.artifacts(runId))).toBeGreaterThan(0);
});

test('a later save replaces an earlier one, and an empty one removes it', async () => {
  await executed('replaced', async (id) => {
    const run = { id, attempt: 1 };
    expect(await artifacts.save(run, ...listOf('first', Buffer.from('1')), 60)).toBe(true);
    expect(await artifacts.save(run, ...listOf('second', Buffer.from('2')), 60)).toBe(true);
    expect((await artifacts.list(id))?.artifacts.map(({ name }) => name)).toEqual(['second']);
    expect(await bytesOf(id, 'second')).toEqual(Buffer.from('2'));
    expect(await artifacts.save(run, NOTHING, [], 60)).toBe(true);
    expect(await redis.exists(keys.artifacts(id))).toBe(0);
  });
});

test('a worker that has lost its run stores nothing: not for another attempt, an ended run or a missing one', async () => {
  const late = listOf('late', Buffer.from('late'));
  const runId = await executed('lost', async (id) => {
    expect(await artifacts.save({ id, attempt: 2 }, ...late, 60)).toBe(false);
  });
  expect(await artifacts.save({ id: runId, attempt: 1 }, ...late, 60)).toBe(false);
  expect(await artifacts.save({ id: 'run_gone', attempt: 1 }, ...late, 60)).toBe(false);
  expect(await redis.exists(keys.artifacts(runId), keys.artifacts('run_gone'))).toBe(0);
});

test('an artifact that is removed while it is read is an error, not a shorter file', async () => {
  const runId = await executed('removed', (id) =>
    artifacts.save({ id, attempt: 1 }, ...listOf('file', Buffer.alloc(600_000)), 60),
  );
  const opened = await artifacts.open(runId, 'file');
  const chunks = opened?.chunks[Symbol.asyncIterator]();
  await chunks?.next();
  await redis.del(keys.artifacts(runId));
  await expect(chunks?.next()).rejects.toThrow('"file" was removed or replaced while it was read');
});
