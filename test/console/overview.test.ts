import { expect, test } from 'vitest';
import { openTestConsole } from '../support/console.ts';
import { acceptRun, createTriggered, FAILED, startConsumer } from '../support/runs.ts';
import { createAutomation } from '../support/store.ts';

const { get, store } = openTestConsole();

test('without an automation, the overview says what to do next', async () => {
  const { body } = await get('/');
  expect(body).toContain('There is no automation yet');
  expect(body).toContain('href="/new-automation"');
  expect(body).toContain('No run was accepted so far.');
  expect(body).toContain('none is alive: accepted runs wait');
  expect(body).toContain('<code>orc worker</code>');
});

test('the workers page says how to start the first worker', async () => {
  const { body } = await get('/workers');
  expect(body).toContain('No worker is alive');
  expect(body).toContain('orc worker');
});

test('the overview counts what was accepted and what failed, and names what waits and who is alive', async () => {
  const automation = await createTriggered(store, 'reports');
  await acceptRun(store, automation);
  const consumer = startConsumer(store, async () => FAILED);
  await expect
    .poll(async () => (await get('/?period=24h')).body)
    .toContain('1 accepted, 0 succeeded, 1 failed, 0 cancelled');
  await consumer.close(1000);
  await acceptRun(store, automation);
  await store.workers.beat('worker-1', 4);
  // What waits is read every second for all watchers.
  await expect.poll(async () => (await get('/')).body, { timeout: 5000 }).toContain('<b>1</b><span>waiting');
  const { body } = await get('/');
  expect(body).toContain(`<b>2</b><span>accepted in 1 h`);
  expect(body).toContain(`<b class="failed">1</b><span>failed in 1 h`);
  expect(body).toContain(`<b>1</b><span>waiting, the oldest for`);
  expect(body).toContain(`<b>0 / 4</b><span>slots busy on 1 worker`);
});

test('the workers page shows each live worker with what it executes', async () => {
  await store.workers.beat('worker-<b>', 3);
  await store.workers.beatDraining('worker-2');
  const { body } = await get('/workers', 'viewer');
  expect(body).toContain('worker-&lt;b>');
  expect(body).not.toContain('worker-<b>');
  expect(body).toContain('3 slots');
  expect(body).toContain('1 of them drain');
});

test('what others wrote is text on the overview', async () => {
  const evil = '</title><script>alert(1)</script>';
  await createAutomation(store, 'evil', { name: evil });
  const { body } = await get('/');
  expect(body).not.toContain('<script>alert');
});
