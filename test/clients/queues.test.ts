import { chromium } from 'playwright-core';
import { describe, expect, onTestFinished, test } from 'vitest';
import { findDebianProgram } from '../support/debian-program.ts';
import { startApiProcess } from '../support/orc-process.ts';
import { acceptRun, createTriggered } from '../support/runs.ts';
import { openTestStore } from '../support/store.ts';

const TOKEN = 'a-token-of-operators';

const program = await findDebianProgram({
  names: ['chromium', 'chromium-browser', 'google-chrome'],
  packages: ['chromium', 'fonts-dejavu-core'],
  path: 'usr/lib/chromium/chromium',
});

const store = openTestStore();

describe.runIf(program)('/queues in Chromium', () => {
  test('shows who has the token a run and its payload, and asks nobody else for anything', async () => {
    const ops = { OPS_PORT: '0', OPS_QUEUES: 'read', OPS_TOKEN: TOKEN };
    const api = await startApiProcess({ ...store.env, ...ops });
    onTestFinished(async () => {
      await api.stop();
    });
    const { url } = await api.record(({ msg }) => msg === 'ops listens');
    await acceptRun(store, await createTriggered(store, 'seen'), '{"seen":"payload"}');

    const browser = await chromium.launch({
      executablePath: program?.command ?? '',
      env: { ...program?.env } as Record<string, string>,
      args: ['--no-sandbox', '--disable-dev-shm-usage'],
    });
    onTestFinished(() => browser.close());
    const context = await browser.newContext({ httpCredentials: { username: 'anyone', password: TOKEN } });
    const page = await context.newPage();
    const answered = new Set<string>();
    page.on('response', (response) => answered.add(new URL(response.url()).origin));
    await page.goto(`${url}/queues/queue/runs?status=waiting`);
    await page.getByText('seen').first().waitFor();
    await page.getByText('payload').first().waitFor();
    expect([...answered]).toEqual([url]);
  });
});
