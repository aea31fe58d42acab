import type { Command } from 'ioredis';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { AgentEvent } from '../../src/core/agent-event.ts';
import type { RunLogSource } from '../../src/store/run-log.ts';
import { openTestConsole } from '../support/console.ts';
import {
  acceptRun,
  createTriggered,
  FAILED,
  HeldAttempts,
  startConsumer,
  untilStatus,
} from '../support/runs.ts';

const { get, post, store, app, cookies } = openTestConsole();

const EVIL = `"><script>alert(1)</script><img src=x onerror=alert(1)>'&\u001b[31m\u202e`;

let nextSlug = 0;
async function newAutomation() {
  nextSlug += 1;
  return createTriggered(store, `automation-${nextSlug}`);
}

/** Runs of an automation that have failed, in the order of their ids. */
async function failedRuns(count: number) {
  const automation = await newAutomation();
  const ids: string[] = [];
  for (let index = 0; index < count; index++) ids.push(await acceptRun(store, automation));
  const consumer = startConsumer(store, async () => FAILED);
  await expect
    .poll(async () => store.redis.zcard(store.keys.endedRuns(automation.slug)), { timeout: 20_000 })
    .toBe(count);
  await consumer.close(5000);
  return { automation, ids };
}

async function printLog(runId: string, text: string, source: RunLogSource = 'stdout'): Promise<void> {
  const data = Buffer.from(text);
  const entries = [];
  for (let offset = 0; offset < data.length; offset += 16_384) {
    const piece = data.subarray(offset, offset + 16_384);
    entries.push({ time: new Date(), attempt: 1, source, offset, data: piece });
  }
  await store.runLogs.append(runId, entries, [], 3600);
}

/** Ids of runs that a page links to, in order. */
function linkedRuns(body: string): string[] {
  return [...body.matchAll(/href="\/runs\/(run_[^"/]+)"/g)].map(([, id = '']) => id);
}

/** What was sent to Redis while something happened. */
async function commandsOf(action: () => Promise<unknown>): Promise<string[]> {
  const names: string[] = [];
  const send = store.redis.sendCommand.bind(store.redis);
  store.redis.sendCommand = (command: Command, ...rest: []) => {
    names.push(command.name);
    return send(command, ...rest);
  };
  onTestFinished(() => {
    store.redis.sendCommand = send;
  });
  await action();
  store.redis.sendCommand = send;
  return names;
}

test('the transcript of an agent is on the page, with its tool calls folded, and its changes as a diff', async () => {
  const attempts = new HeldAttempts();
  const consumer = startConsumer(store, attempts.execute);
  const id = await acceptRun(store, await newAutomation());
  await attempts.untilStarted(id);
  const at = '2026-01-01T00:00:00.000Z';
  const events: AgentEvent[] = [
    { at, type: 'message', text: 'I look at <b>the test</b>.\n' },
    {
      at,
      type: 'tool',
      id: '1',
      title: 'npm test',
      kind: 'execute',
      status: 'completed',
      output: `2 fail${EVIL}`,
    },
  ];
  await printLog(id, events.map((event) => `${JSON.stringify(event)}\n`).join(''), 'agent');
  const patch = Buffer.from('diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+<script>new\n');
  const artifact = { name: 'changes.patch', bytes: patch.length, sha256: 'a'.repeat(64) };
  await store.artifacts.save(
    { id, attempt: 1 },
    { artifacts: [artifact], omitted: [], omittedCount: 0 },
    [patch],
    3600,
  );
  const { body } = await get(`/runs/${id}`);
  expect(body).toContain('I look at &lt;b>the test&lt;/b>.');
  expect(body).toMatch(
    /<details class="l agent tool"><summary><time[^>]*>[^<]*<\/time>tool execute, completed: npm test/,
  );
  expect(body).toContain('<div class="fg2">+&lt;script>new</div>');
  expect(body).toContain('<div class="fg1">-old</div>');
  const all = await get(`/runs/${id}/log`);
  expect(all.body).toContain('tool execute, completed: npm test\n');
  attempts.end(id);
  await consumer.close(5000);
});

test('the page of a run that waits says until when: after a failure, or for a place', async () => {
  nextSlug += 1;
  const limits = { concurrency: 1, attempts: 2 };
  const automation = await createTriggered(store, `automation-${nextSlug}`, limits);
  const [failing, held] = [await acceptRun(store, automation), await acceptRun(store, automation)];
  const attempts = new HeldAttempts();
  const consumer = startConsumer(store, attempts.execute);
  await attempts.untilStarted(failing);
  expect((await get(`/runs/${failing}`)).body).not.toContain('Next attempt');
  const closing = consumer.close(5000);
  attempts.end(failing, { ...FAILED, mayRetry: true });
  await closing;
  const [, due = ''] =
    /Next attempt<\/dt><dd><time datetime="([^"]+)"/.exec((await get(`/runs/${failing}`)).body) ?? [];
  const pause = Date.parse(due) - Date.now();
  expect(pause).toBeLessThanOrEqual(1000);
  expect(pause).toBeGreaterThan(-60_000);
  expect((await get(`/runs/${held}`)).body).toContain(
    'Next attempt</dt><dd>when its automation is resumed, or has a free place',
  );
  for (const id of [failing, held]) await store.runs.cancel(id);
});

describe('the list of runs', () => {
  test('shows all runs in pages, newest first, each of them once', async () => {
    const { automation, ids } = await failedRuns(120);
    const seen: string[] = [];
    for (let path: string | undefined = `/runs?automation=${automation.slug}`; path !== undefined; ) {
      const { body, statusCode } = await get(path);
      expect(statusCode).toBe(200);
      seen.push(...linkedRuns(body));
      path = /rel="next" href="([^"]+)"/.exec(body)?.[1]?.replaceAll('&amp;', '&');
    }
    expect(seen).toEqual(ids.toReversed());

    const failed: string[] = [];
    for (
      let path: string | undefined = `/runs?automation=${automation.slug}&status=any-failure`;
      path !== undefined;
    ) {
      const { body } = await get(path);
      failed.push(...linkedRuns(body));
      path = /rel="next" href="([^"]+)"/.exec(body)?.[1]?.replaceAll('&amp;', '&');
    }
    expect(failed.toSorted()).toEqual(ids.toSorted());
  });

  test('shows runs with one status, and runs of a period', async () => {
    const automation = await newAutomation();
    const attempts = new HeldAttempts();
    const consumer = startConsumer(store, attempts.execute, { concurrency: 1 });
    const first = await acceptRun(store, automation);
    await attempts.untilStarted(first);
    const second = await acceptRun(store, automation);
    const list = async (query: string) =>
      linkedRuns((await get(`/runs?automation=${automation.slug}&${query}`)).body);
    expect(await list('status=running')).toEqual([first]);
    expect(await list('status=queued')).toEqual([second]);
    expect(await list('status=succeeded')).toEqual([]);
    expect(await list('since=1h')).toEqual([second, first]);
    expect(await list('until=1h')).toEqual([]);
    await store.runs.cancel(second);
    expect(await list('status=cancelled')).toEqual([second]);
    await consumer.close(0);
  });

  test.each(['automation=No+Slug', 'status=fine', 'since=yesterday', 'since=1h&until=2h', 'after=x'])(
    'a filter that makes no sense, %s, is answered in words',
    async (query) => {
      const { statusCode, body } = await get(`/runs?${query}`);
      expect(statusCode).toBe(400);
      expect(body).toContain('The filter is not understood');
    },
  );

  test('an empty list says what to do next', async () => {
    expect((await get('/runs?automation=nobody')).body).toContain('Show all runs');
  });

  test('says how many runs are newer than those that are shown', async () => {
    const automation = await newAutomation();
    const first = await acceptRun(store, automation);
    await acceptRun(store, automation);
    await acceptRun(store, automation);
    const { body } = await get(`/runs/newer?automation=${automation.slug}&newest=${first}`);
    expect(JSON.parse(body)).toEqual({ count: 2, atLeast: 50 });
  });

  test('says of failed runs how many have ended later, also of runs that were accepted earlier', async () => {
    const automation = await newAutomation();
    const attempts = new HeldAttempts();
    const long = await acceptRun(store, automation);
    const short = await acceptRun(store, automation);
    const consumer = startConsumer(store, attempts.execute);
    // Besides those that other tests have left.
    await expect
      .poll(() => attempts.startedIds, { timeout: 20_000 })
      .toEqual(expect.arrayContaining([long, short]));
    attempts.end(short, FAILED);
    await untilStatus(store, short, 'failed');
    const list = `automation=${automation.slug}&status=any-failure`;
    const newest = / data-newest="(\d+)"/.exec((await get(`/runs?${list}`)).body)?.[1];
    const count = async () => JSON.parse((await get(`/runs/newer?${list}&newest=${newest}`)).body).count;
    expect(await count()).toBe(0);
    attempts.end(long, FAILED);
    await untilStatus(store, long, 'failed');
    expect(await count()).toBe(1);
    await consumer.close(0);
  });

  test('a page needs a bounded number of commands, however few of many runs it shows', async () => {
    const { automation } = await failedRuns(300);
    // All of them are among the failed ones for BullMQ, so that each has to be looked at.
    for (const status of ['', 'any-failure', 'cancelled', 'queued', 'running', 'retrying', 'succeeded']) {
      const commands = await commandsOf(() => get(`/runs?automation=${automation.slug}&status=${status}`));
      expect(commands.length, status).toBeLessThan(230);
    }
    const { body } = await get(`/runs?automation=${automation.slug}&status=cancelled`);
    expect(body).toContain('Look further back');
  });
});

describe('the page of a run', () => {
  test('shows what is known of it, and as text whatever others wrote', async () => {
    const automation = await createTriggered(store, 'evil', { name: EVIL });
    const attempts = new HeldAttempts();
    const consumer = startConsumer(store, attempts.execute);
    const payload = JSON.stringify({ evil: EVIL });
    const id = await acceptRun(store, automation, payload);
    await attempts.untilStarted(id);
    await printLog(id, `${EVIL}\n`);
    const bytes = Buffer.from(EVIL);
    const artifact = {
      name: `${EVIL.replaceAll('/', '')}.html`,
      bytes: bytes.length,
      sha256: 'a'.repeat(64),
    };
    const list = {
      artifacts: [artifact],
      omitted: [{ name: EVIL, reason: 'too_large' as const }],
      omittedCount: 1,
    };
    expect(await store.artifacts.save({ id, attempt: 1 }, list, [bytes], 3600)).toBe(true);
    const outcome = { status: 'failed', reason: 'exit_code', message: EVIL, detail: EVIL } as const;
    attempts.end(id, { outcome, mayRetry: false });
    await expect.poll(async () => (await store.runs.get(id))?.status).toBe('failed');
    await consumer.close(5000);

    const { body, statusCode } = await get(`/runs/${id}`);
    expect(statusCode).toBe(200);
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
    expect(body).not.toMatch(/<script>|<img src=x|\u001b|\u202e/);
    expect(body.match(/&lt;script>|&lt;script&gt;/g)?.length).toBeGreaterThan(5);

    const file = await get(`/runs/${id}/artifacts/0`);
    expect(file.rawPayload.equals(bytes)).toBe(true);
    expect(file.headers['content-disposition']).toMatch(
      /^attachment; filename="[\w.-]+"; filename\*=UTF-8''[\w.%~-]+$/,
    );
    expect(file.headers['content-security-policy']).toBe("sandbox; default-src 'none'");
    expect(file.headers['content-type']).toBe('application/octet-stream');
    expect(file.headers['x-content-type-options']).toBe('nosniff');
    expect((await get(`/runs/${id}/payload`)).body).toBe(payload);
    expect((await get(`/runs/${id}/log.txt`)).body).toBe(`${EVIL}\n`);
    expect((await get(`/runs/${id}/log`)).headers['content-type']).toBe('text/plain; charset=utf-8');
    expect((await get('/runs')).body).not.toMatch(/<script>|<img src=x/);
  });

  test('shows the end of a long log, with a link to all of it', async () => {
    const id = await acceptRun(store, await newAutomation());
    const lines = Array.from(
      { length: 30_000 },
      (_, index) => `line ${index} \u001b[31mred\u001b[0m <script>`,
    );
    await printLog(id, lines.join('\n'));
    const { body } = await get(`/runs/${id}`);
    expect(body.length).toBeLessThan(1_000_000);
    expect(body).toContain('line 29999 ');
    expect(body).not.toContain('line 10 ');
    expect(body).toContain(`href="/runs/${id}/log"`);
    const all = await get(`/runs/${id}/log`);
    expect(all.body.split('\n').map((line) => line.slice(25))).toEqual([
      ...lines.map((_, index) => `line ${index} red <script>`),
      '',
    ]);
    expect((await get(`/runs/${id}/log.txt`)).body).toBe(lines.join('\n'));
  });

  test('needs a bounded number of commands', async () => {
    const id = await acceptRun(store, await newAutomation());
    await printLog(id, 'x\n'.repeat(500_000));
    expect((await commandsOf(() => get(`/runs/${id}`))).length).toBeLessThan(40);
  });

  test('is found by the beginning of its id', async () => {
    const id = await acceptRun(store, await newAutomation());
    const { statusCode, headers } = await get(`/runs/${id.slice(4, 30)}`);
    expect([statusCode, headers.location]).toEqual([302, `/runs/${id}`]);
  });

  test.each(['run_x', 'meta', '..%2f..%2fetc%2fpasswd', '%00', `run_${'0'.repeat(36)}`, 'x'.repeat(90)])(
    'is answered in words when there is no run %s',
    async (id) => {
      for (const path of ['', '/events', '/log', '/log.txt', '/payload', '/result', '/artifacts/0']) {
        const { statusCode, body } = await get(`/runs/${id}${path}`);
        expect([400, 404]).toContain(statusCode);
        expect(body).toContain('<h1>');
      }
    },
  );

  test.each(['artifacts/9', 'artifacts/-1', 'artifacts/x', 'result'])(
    'says that there is no %s',
    async (path) => {
      const id = await acceptRun(store, await newAutomation());
      expect((await get(`/runs/${id}/${path}`)).statusCode).toBe(404);
    },
  );
});

describe('an admin', () => {
  test('cancels a run that waits, and retries one that has ended', async () => {
    const id = await acceptRun(store, await newAutomation(), '{"a":1}');
    expect((await get(`/runs/${id}`)).body).toContain('The run ends and never starts.');
    expect((await post(`/runs/${id}/cancel`)).headers.location).toBe(`/runs/${id}`);
    expect((await store.runs.get(id))?.status).toBe('cancelled');

    const { headers, statusCode } = await post(`/runs/${id}/retry`);
    expect(statusCode).toBe(303);
    const newId = String(headers.location).slice('/runs/'.length);
    expect(await store.runs.get(newId)).toMatchObject({ retryOf: id, status: 'queued' });
    expect(await store.runs.payload(newId)).toBe('{"a":1}');
    expect((await get(`/runs/${newId}`)).body).toContain(`href="/runs/${id}"`);
  });

  test('is told why a run cannot be retried or cancelled', async () => {
    const automation = await newAutomation();
    const id = await acceptRun(store, automation);
    expect((await post(`/runs/${id}/retry`)).body).toContain('Only an ended run can be retried.');
    await post(`/runs/${id}/cancel`);
    expect((await post(`/runs/${id}/cancel`)).body).toContain('It ended before it could be cancelled.');
    await store.automations.setEnabled(automation.slug, false);
    expect((await post(`/runs/${id}/retry`)).body).toContain('Its automation is disabled.');
  });
});

test('a viewer reads, and neither cancels nor retries', async () => {
  const id = await acceptRun(store, await newAutomation());
  const { body } = await get(`/runs/${id}`, 'viewer');
  expect(body).not.toContain('<form method="post" action="/runs');
  for (const action of ['cancel', 'retry']) {
    expect((await post(`/runs/${id}/${action}`, {}, 'viewer')).statusCode).toBe(403);
  }
  expect((await store.runs.get(id))?.status).toBe('queued');
});

describe('a live log', () => {
  test('is sent as events that no proxy keeps, until the run has ended', async () => {
    const id = await acceptRun(store, await newAutomation());
    await printLog(id, 'hello\n');
    await store.runs.cancel(id);
    const { headers, body, statusCode } = await get(`/runs/${id}/events?after=0-0`);
    expect(statusCode).toBe(200);
    expect(headers).toMatchObject({
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-store, no-transform',
      'x-accel-buffering': 'no',
    });
    expect(body).toMatch(/^retry: 1000\n\n/);
    expect(body).toContain(Buffer.from('hello\n').toString('base64'));
    expect(body).toMatch(/event: end\ndata: {}\n\n$/);
    const [, lastId = ''] = /^id: (.*)$/m.exec(body) ?? [];
    const again = await app.inject({
      url: `/runs/${id}/events?after=0-0`,
      headers: { host: 'localhost:3001', cookie: cookies.admin, 'last-event-id': lastId },
    });
    expect(again.body).not.toContain('event: log');
  });

  test('ends soon after its operator is removed', async () => {
    const id = await acceptRun(store, await newAutomation());
    await store.operators.add('leaver', 'viewer');
    const link = await store.operators.createLink('leaver');
    const session = await store.operators.login(link?.token ?? '', { address: '::1', userAgent: '' });
    const { port } = new URL(await app.listen({ port: 0, host: '127.0.0.1' }));
    const headers = { cookie: `orc_session=${session?.token}` };
    const { body } = await fetch(`http://localhost:${port}/runs/${id}/events`, { headers });
    const reader = body?.getReader();
    let hasEnded = false;
    const readOn = async () => {
      while (!(await reader?.read())?.done) if (hasEnded) return;
      hasEnded = true;
    };
    await reader?.read();
    const reading = readOn();
    await store.operators.remove('leaver');
    // Every 15 s each stream is judged in any case.
    await expect.poll(() => hasEnded, { timeout: 8000 }).toBe(true);
    await reading;
    await store.runs.cancel(id);
  });

  test('is sent to nobody without a session', async () => {
    const id = await acceptRun(store, await newAutomation());
    const { statusCode, body } = await app.inject({
      url: `/runs/${id}/events`,
      headers: { host: 'localhost:3001' },
    });
    expect(statusCode).toBe(401);
    expect(body).not.toContain(id);
  });
});
