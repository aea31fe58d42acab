import { mkdir, writeFile } from 'node:fs/promises';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, test, vi } from 'vitest';
import type { Actor } from '../../src/core/audit.ts';
import { auditedStore } from '../../src/store/audited-store.ts';
import { findChromium, launchChromium } from '../support/chromium.ts';
import { openTestConsole } from '../support/console.ts';
import { fillStore } from '../support/console-stage.ts';
import { startWorkerProcess } from '../support/orc-process.ts';

const FOLDER = new URL('../../docs/images/', import.meta.url);

/** Of these there is a picture on a phone, too. All pictures together stay below 1 MB. */
const ON_A_PHONE = ['runs', 'run-failed'];

/** Of this there is one in the dark only. */
const IN_THE_DARK = 'run-live';

const program = await findChromium();

/** Writes a picture of every page of the console, in both schemes and on a phone, for the docs. */
describe.runIf(program)('pictures of the console', () => {
  const { app, store, cookies } = openTestConsole();
  let browser: Browser;
  let origin: string;
  let pages: [name: string, path: string][];
  let worker: Awaited<ReturnType<typeof startWorkerProcess>>;

  beforeAll(async () => {
    await mkdir(FOLDER, { recursive: true });
    if (program) browser = await launchChromium(program);
    origin = (await app.listen({ port: 0, host: '127.0.0.1' })).replace('127.0.0.1', 'localhost');
    worker = await startWorkerProcess(store.env);
    const { built, failed, live } = await fillStore(store);
    const expected = { [failed]: 'failed', [built.at(-1) ?? '']: 'succeeded', [live]: 'running' };
    await vi.waitFor(
      async () => {
        for (const [id, status] of Object.entries(expected)) {
          if ((await store.runs.get(id))?.status !== status) throw new Error(`${id} is not ${status} yet`);
        }
      },
      { timeout: 60_000 },
    );
    const by = (actor: Actor) =>
      auditedStore(store, actor, (error) => {
        throw error;
      });
    const [ada, pipeline] = [by({ operator: 'ada' }), by({ user: 'deploy', host: 'ci-1' })];
    const seen = await store.automations.get('nightly-report');
    if (seen) await pipeline.automations.replace(seen, { ...seen, timeoutMs: 300_000 });
    await ada.automations.setPaused('reindex', true);
    await ada.automations.setPaused('reindex', false);
    await ada.automations.rotateKey('build-shop', 86_400_000);
    await ada.operators.add('grace', 'viewer');
    pages = [
      ['overview', '/'],
      ['automations', '/automations'],
      ['automation', '/automations/build-shop'],
      ['new-automation', '/new-automation'],
      ['runs', '/runs'],
      ['run-failed', `/runs/${failed}`],
      ['run-live', `/runs/${live}`],
      ['workers', '/workers'],
      ['audit', '/audit'],
    ];
  });

  afterAll(async () => {
    await browser?.close();
    await worker?.stop();
  });

  test.each([
    ['light', 1040, 640],
    ['dark', 1040, 640],
    ['dark', 360, 720],
  ] as const)('%s, %i pixels wide', async (colorScheme, width, height) => {
    const context = await browser.newContext({
      colorScheme,
      viewport: { width, height },
      locale: 'en-GB',
      timezoneId: 'UTC',
    });
    const [name = '', value = ''] = cookies.admin.split('=');
    await context.addCookies([{ name, value, url: origin }]);
    const page = await context.newPage();
    const suffix = width < 400 ? 'phone' : colorScheme;
    for (const [title, path] of pages.filter(([title]) => isShown(title, suffix))) {
      await page.goto(origin + path);
      if (title === 'run-live') await page.getByText(/^step/).nth(4).waitFor();
      await writeFile(new URL(`console-${title}-${suffix}.png`, FOLDER), await page.screenshot());
    }
    await context.close();
  });
});

function isShown(title: string, suffix: string): boolean {
  if (suffix === 'phone') return ON_A_PHONE.includes(title);
  return suffix === 'dark' || title !== IN_THE_DARK;
}
