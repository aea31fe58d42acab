import { expect } from 'vitest';
import { getHealth, postTrigger } from '../support/http.ts';
import { type Installation, untilSucceeded } from './installation.ts';

const RUNS = 40;

/** What orc promises on every Redis, by the ways its users go: HTTP and the command line. */
export async function checkCore(installation: Installation): Promise<void> {
  await checkRuns(installation);
  await checkIdempotency(installation);
  await checkLane(installation);
  await checkRate(installation);
  expect((await getHealth(installation.api.url)).body['status']).toBe('ok');
  await checkDoctor(installation);
}

async function checkRuns(installation: Installation): Promise<void> {
  const { api, orc } = installation;
  const writer = await installation.createWriter('work', [], 'echo "out $ORC_RUN_ID" | tee -a "$FILE"');
  const answers = await Promise.all(
    Array.from({ length: RUNS }, () => postTrigger(api.url, 'work', writer.key)),
  );
  expect(answers.map(({ status }) => status)).toEqual(Array(RUNS).fill(202));
  const runIds = answers.map(({ body }) => String(body['runId']));
  await Promise.all(runIds.map((runId) => untilSucceeded(installation, runId)));
  expect((await writer.lines()).sort()).toEqual(runIds.map((runId) => `out ${runId}`).sort());

  const list = ['runs', 'list', '--automation', 'work', '--limit', '100', '--json'];
  const listed = JSON.parse(await orc(...list)) as { id: string; status: string }[];
  expect(listed.map(({ id, status }) => `${id} ${status}`).sort()).toEqual(
    runIds.map((runId) => `${runId} succeeded`).sort(),
  );
  const [runId = ''] = runIds;
  expect(await orc('runs', 'logs', runId)).toBe(`out ${runId}\n`);
}

async function checkIdempotency(installation: Installation): Promise<void> {
  const { key } = await installation.createWriter('once', [], 'echo "$ORC_RUN_ID" >> "$FILE"');
  const send = (payload: string) =>
    fetch(`${installation.api.url}/orc/api/automation-triggers/once`, {
      method: 'POST',
      headers: { 'x-api-key': key, 'content-type': 'application/json', 'idempotency-key': 'one' },
      body: payload,
    });
  const answers = await Promise.all([send('{}'), send('{}'), send('{}')]);
  const bodies = (await Promise.all(answers.map((answer) => answer.json()))) as { runId: string }[];
  expect(answers.map(({ status }) => status)).toEqual([202, 202, 202]);
  expect(new Set(bodies.map(({ runId }) => runId)).size).toBe(1);
  expect(answers.filter(({ headers }) => headers.get('idempotency-replayed') === 'true')).toHaveLength(2);
  await untilSucceeded(installation, bodies[0]?.runId);
  const replay = await send('{}');
  expect(await replay.json()).toEqual({ runId: bodies[0]?.runId, status: 'succeeded' });
  expect((await send('{"other":1}')).status).toBe(422);
}

/** Never two at once, and in order of acceptance. */
async function checkLane(installation: Installation): Promise<void> {
  const code = 'echo "begin $ORC_RUN_ID" >> "$FILE"; sleep 0.02; echo "end $ORC_RUN_ID" >> "$FILE"';
  const writer = await installation.createWriter('lane', ['--concurrency', '1'], code);
  const expected: string[] = [];
  for (let count = 0; count < 5; count += 1) {
    const { status, body } = await postTrigger(installation.api.url, 'lane', writer.key);
    expect(status).toBe(202);
    expected.push(`begin ${body['runId']}`, `end ${body['runId']}`);
  }
  await untilSucceeded(installation, expected.at(-1)?.split(' ')[1]);
  expect(await writer.lines()).toEqual(expected);
}

async function checkRate(installation: Installation): Promise<void> {
  const writer = await installation.createWriter('rare', ['--rate', '2/h'], 'echo "$ORC_RUN_ID" >> "$FILE"');
  const send = () => postTrigger(installation.api.url, 'rare', writer.key);
  const answers = [await send(), await send(), await send()];
  expect(answers.map(({ status }) => status)).toEqual([202, 202, 429]);
}

/** The doctor finds nothing; not every login may ask for appendfsync. */
async function checkDoctor({ orc }: Installation): Promise<void> {
  const findings = JSON.parse(await orc('doctor', '--json')) as { check: string; state: string }[];
  const odd = findings.filter(({ state }) => state !== 'ok').map(({ check, state }) => `${check} ${state}`);
  expect(odd.filter((finding) => finding !== 'appendfsync unknown')).toEqual([]);
  expect(findings.map(({ check }) => check)).toContain('overdue runs');
}
