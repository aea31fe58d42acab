import { afterAll, expect, test } from 'vitest';
import type { LogRecord } from '../src/local/child.ts';
import { type OrcProcess, startApiProcess, startWorkerProcess } from './support/orc-process.ts';
import { createAutomation, openTestStore, script } from './support/store.ts';

const TIME = expect.stringMatching(/^\d{4}-\d{2}-\d{2}T[\d:.]+Z$/);

const store = openTestStore();
const api = await startApiProcess(store.env);
const worker = await startWorkerProcess(store.env);

afterAll(async () => {
  await api.stop();
  await worker.stop();
});

async function triggerAs(requestId: string, slug: string, key: string): Promise<string> {
  const response = await fetch(`${api.url}/orc/api/automation-triggers/${slug}`, {
    method: 'POST',
    headers: { 'x-api-key': key, 'x-request-id': requestId },
  });
  return ((await response.json()) as { runId: string }).runId;
}

/** Every line of a process about a run. */
function linesAbout(process: OrcProcess, runId: string): LogRecord[] {
  return process.lines.map((line) => JSON.parse(line) as LogRecord).filter((line) => line['runId'] === runId);
}

test('a request is one line and each transition of its run another, with the same names in both processes', async () => {
  const failsFirst = script('process.exit(process.env.ORC_ATTEMPT === "1" ? 3 : 0)');
  const key = await createAutomation(store, 'logged', { action: failsFirst, attempts: 2 });
  const runId = await triggerAs('ci-17', 'logged', key);
  await worker.record(({ msg }) => msg === 'run ended');
  await api.record(({ msg, runId: id }) => msg === 'request' && id === runId);

  const named = { time: TIME, level: 'info', requestId: 'ci-17', automation: 'logged', runId };
  const durationMs = expect.any(Number);
  expect(linesAbout(api, runId)).toEqual([
    {
      ...named,
      process: 'api',
      msg: 'request',
      method: 'POST',
      path: '/orc/api/automation-triggers/:slug',
      statusCode: 202,
      durationMs,
      address: '127.0.0.1',
      userAgent: 'node',
    },
  ]);
  const ending = { reason: 'exit_code', durationMs, message: expect.any(String) };
  expect(linesAbout(worker, runId)).toEqual([
    { ...named, process: 'worker', msg: 'run started', attempt: 1, status: 'running' },
    {
      ...named,
      process: 'worker',
      msg: 'run retries',
      attempt: 1,
      status: 'retrying',
      ...ending,
      exitCode: 3,
    },
    { ...named, process: 'worker', msg: 'run started', attempt: 2, status: 'running' },
    {
      ...named,
      process: 'worker',
      msg: 'run ended',
      attempt: 2,
      status: 'succeeded',
      ...ending,
      exitCode: 0,
    },
  ]);
});

test('the last attempt that fails is the end of its run', async () => {
  const key = await createAutomation(store, 'fails', { action: script('process.exit(4)') });
  const runId = await triggerAs('ci-18', 'fails', key);
  await worker.record(({ msg, runId: id }) => msg === 'run ended' && id === runId);
  expect(linesAbout(worker, runId).map(({ msg, status }) => [msg, status])).toEqual([
    ['run started', 'running'],
    ['run ended', 'failed'],
  ]);
});
