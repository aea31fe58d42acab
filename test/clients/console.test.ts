import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { gzipSync } from 'node:zlib';
import axe from 'axe-core';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { readAssets } from '../../src/console/asset-files.ts';
import { findChromium, launchChromium } from '../support/chromium.ts';
import { fillStore, SLOW } from '../support/console-stage.ts';
import {
  type OrcProcess,
  runOrcProcess,
  startApiProcess,
  startOrc,
  startWorkerProcess,
} from '../support/orc-process.ts';
import { acceptRun, createTriggered, untilStatus } from '../support/runs.ts';
import { openTestStore, script } from '../support/store.ts';

const program = await findChromium();

const SCHEMES = ['light', 'dark'] as const;
const WIDTHS = [360, 1920];
const views = SCHEMES.flatMap((scheme) => WIDTHS.map((width) => [scheme, width] as const));

/** Everything that may be loaded from within a page may run: nothing of it must ever do so. */
const EVIL = `"><script>document.title='broken'</script><img src=x onerror="document.title='broken'">'&`;

test('script and style of the console take at most 50 KB, compressed', () => {
  const bytes = Object.values(readAssets().files).map(({ text }) => gzipSync(text).length);
  expect(bytes.reduce((sum, each) => sum + each, 0)).toBeLessThan(50_000);
});

describe.runIf(program)('the console in Chromium', () => {
  const store = openTestStore();
  const processes: OrcProcess[] = [];
  let browser: Browser;
  let origin: string;
  let api: Awaited<ReturnType<typeof startApiProcess>>;

  beforeAll(async () => {
    if (program) browser = await launchChromium(program);
    api = await startApiProcess(store.env);
    const console = startOrc(['console'], { env: { ...store.env, CONSOLE_PORT: '0', PUBLIC_URL: api.url } });
    processes.push(api, console, await startWorkerProcess(store.env));
    const { url } = await console.record(({ msg }) => msg === 'console listens');
    origin = String(url).replace('127.0.0.1', 'localhost');
  });

  afterAll(async () => {
    await browser?.close();
    await Promise.all(processes.map((each) => each.stop()));
  });

  /** The link that the command line prints for a new operator. */
  async function loginLink(name: string, role: string): Promise<string> {
    const env = { ...store.env, CONSOLE_URL: origin };
    const added = await runOrcProcess(['operators', 'add', name, '--role', role], { env });
    const link = /http\S+\/login\/\S+/.exec(added.stdout)?.[0];
    if (link === undefined) throw new Error(`no link in: ${added.stdout}${added.stderr}`);
    return link;
  }

  /** A browser in which an operator is logged in; it collects what the browser complains about. */
  async function logIn(
    options: Parameters<Browser['newContext']>[0] = {},
  ): Promise<{ context: BrowserContext; page: Page; name: string; complaints: string[] }> {
    const name = `op-${randomBytes(4).toString('hex')}`;
    const link = await loginLink(name, 'admin');
    const context = await browser.newContext(options);
    const page = await context.newPage();
    const complaints: string[] = [];
    page.on('console', (message) => complaints.push(message.text()));
    page.on('pageerror', ({ message }) => complaints.push(message));
    await page.goto(link);
    await page.getByRole('button', { name: 'Log in' }).click();
    await page.getByRole('navigation', { name: 'Pages' }).waitFor();
    return { context, page, name, complaints };
  }

  /** Makes a page believe that its tab is hidden. */
  async function hide(page: Page, isHidden: boolean): Promise<void> {
    await page.evaluate(`Object.defineProperty(document, 'hidden', { configurable: true, value: ${isHidden} });
      document.dispatchEvent(new Event('visibilitychange'))`);
  }

  async function sound(page: Page, what: string): Promise<void> {
    await page.evaluate(axe.source);
    const { violations, passes } = await page.evaluate<axe.AxeResults>('axe.run()');
    expect(violations.map(({ id, nodes }) => [what, id, nodes.map(({ html }) => html)])).toEqual([]);
    expect(passes.map(({ id }) => id)).toContain('color-contrast');
  }

  test('a story: log in, watch a run, cancel it, create an automation, copy its line of curl into a shell, read its failure, retry it', async () => {
    const slow = await createTriggered(store, 'story-slow', { action: script(SLOW) });
    const slowId = await acceptRun(store, slow);
    const { context, page, complaints } = await logIn();

    await page.getByRole('link', { name: 'Runs', exact: true }).click();
    await page.getByRole('link', { name: slowId.slice(4, 22) }).click();
    const log = page.getByRole('region', { name: 'Log of the run' });
    await log.getByText(/^step/).nth(20).waitFor();
    await page.getByText('live', { exact: true }).waitFor();
    await page.getByText('Cancel…').click();
    await page.getByRole('button', { name: 'Cancel the run' }).click();
    await page.locator('h1').getByText('cancelled').waitFor({ timeout: 20_000 });

    await page.goto(`${origin}/new-automation`);
    await page.getByLabel('Slug').fill('story-failing');
    const source = "console.log('it begins'); console.error('no route to host'); process.exit(3)";
    await page.locator('[name="command.command"]').fill(`${process.execPath} -e "${source}"`);
    await page.getByRole('button', { name: 'Create and show its key' }).click();
    await page.getByText('story-failing is ready').waitFor();
    await context.grantPermissions(['clipboard-read', 'clipboard-write'], { origin });
    const copied = async (button: string) => {
      await page.getByRole('button', { name: button }).click();
      await page.getByRole('button', { name: 'Copied' }).waitFor();
      const text = await page.evaluate<string>('navigator.clipboard.readText()');
      await page.getByRole('button', { name: button }).waitFor();
      return text;
    };
    const key = await copied('Copy the key');
    expect(key).toMatch(/^orc_[0-9A-Za-z]{49}$/);
    const line = await copied('Copy the line');
    expect(line).toContain(key);
    const { stdout } = await promisify(execFile)('sh', ['-c', line]);
    const { runId } = JSON.parse(stdout) as { runId: string };
    await page.goto(`${origin}/runs/${runId}`);
    await page.locator('h1').getByText('failed').waitFor();
    await expect.poll(() => page.locator('.reason').textContent()).toContain('no route to host');
    await page.getByText('Retry…').click();
    await page.getByRole('button', { name: 'Start a new run' }).click();
    await page.getByRole('link', { name: runId.slice(4, 22) }).waitFor();
    await page.locator('h1').getByText('failed').waitFor();
    await expect.poll(() => log.textContent()).toContain('it begins');
    expect(complaints).toEqual([]);
    await context.close();
  });

  test('the page of a run follows its log, and its head, without being loaded again', async () => {
    const isOpen = join(await mkdtemp(join(tmpdir(), 'orc-console-')), 'is-open');
    onTestFinished(() => rm(dirname(isOpen), { recursive: true }));
    const text = `
      const { existsSync } = require('node:fs');
      process.stdout.write('\\x1b[31mré');
      setInterval(() => {
        if (!existsSync(${JSON.stringify(isOpen)})) return;
        process.stdout.write('d\\x1b[0m\\n<script>document.title="broken"</script>\\n', () => process.exit(0));
      }, 50);`;
    const id = await acceptRun(store, await createTriggered(store, 'followed', { action: script(text) }));
    const { context, page, complaints } = await logIn();
    await untilStatus(store, id, 'running');
    await page.goto(`${origin}/runs/${id}`);
    await page.getByText('live', { exact: true }).waitFor();
    await page.evaluate('window.isSame = true');
    await writeFile(isOpen, '');
    await page.locator('h1').getByText('succeeded').waitFor();
    expect(await page.evaluate('window.isSame')).toBe(true);
    const lines = page.locator('[data-log-lines] .l');
    expect(await lines.nth(1).locator('.fg1').allTextContents()).toEqual(['ré', 'd']);
    expect(await lines.nth(2).textContent()).toContain('<script>document.title');
    expect(await page.title()).not.toBe('broken');
    expect(complaints).toEqual([]);
    await context.close();
  });

  /** A run that waits, and what lets it end. */
  async function openRun(slug: string) {
    const isOpen = join(await mkdtemp(join(tmpdir(), 'orc-console-')), 'is-open');
    onTestFinished(() => rm(dirname(isOpen), { recursive: true }));
    const text = `
      const { existsSync } = require('node:fs');
      console.log('it begins');
      setInterval(() => existsSync(${JSON.stringify(isOpen)}) && process.exit(0), 50);`;
    const id = await acceptRun(store, await createTriggered(store, slug, { action: script(text) }));
    await untilStatus(store, id, 'running');
    return { id, end: () => writeFile(isOpen, '') };
  }

  test('a run that ends is shown as ended, though something is opened on its page, and its page is just on its way', async () => {
    const { id, end } = await openRun('opened');
    const { context, page } = await logIn();
    await page.goto(`${origin}/runs/${id}`);
    await page.getByText('live', { exact: true }).waitFor();
    await page.getByText('Cancel…').click();
    // The next load of the page has seen the run before its end, and comes after it.
    let release: () => void = () => undefined;
    const isEnded = new Promise<void>((resolve) => {
      release = resolve;
    });
    const held = new Promise<void>((resolve) => {
      void page.route(
        `${origin}/runs/${id}`,
        async (route) => {
          const response = await route.fetch();
          resolve();
          await isEnded;
          await route.fulfill({ response });
        },
        { times: 1 },
      );
    });
    await held;
    await end();
    await untilStatus(store, id, 'succeeded');
    await page.locator('[data-log-lines]').getByText('Attempt 1 ended').waitFor();
    release();
    await page.locator('h1').getByText('succeeded').waitFor();
    expect(await page.getByText('Cancel…').count()).toBe(0);
    await context.close();
  });

  test('a log whose stream is refused for a while goes on by itself, and its figures too', async () => {
    const { id, end } = await openRun('refused');
    const { context, page } = await logIn();
    await page.route('**/events?*', (route) => route.fulfill({ status: 503 }), { times: 1 });
    await page.goto(`${origin}/runs/${id}`);
    await page.getByText('waiting for the console').waitFor();
    await page.getByText('live', { exact: true }).waitFor();
    const took = page.locator('dt', { hasText: 'Took' }).locator('xpath=following-sibling::dd[1]');
    const before = await took.textContent();
    await expect.poll(() => took.textContent(), { timeout: 20_000 }).not.toBe(before);
    await end();
    await page.locator('h1').getByText('succeeded').waitFor();
    await context.close();
  });

  test('a second click starts no second run', async () => {
    await createTriggered(store, 'clicked', { action: script('') });
    const { context, page } = await logIn();
    await page.route('**/automations/clicked/run', async (route) => {
      await page.waitForTimeout(500);
      await route.continue();
    });
    await page.goto(`${origin}/automations/clicked`);
    const button = page.getByRole('button', { name: 'Start the run' });
    await page.locator('summary', { hasText: 'Run now' }).click();
    await button.evaluate((element: HTMLElement) => {
      element.click();
      setTimeout(() => element.click(), 200);
    });
    await page.waitForURL('**/runs/run_*');
    expect(await store.runs.list({ automation: 'clicked', limit: 10 })).toHaveLength(1);
    await context.close();
  });

  test('a hidden tab lets go of its log, and takes it up again where it was', async () => {
    const id = await acceptRun(store, await createTriggered(store, 'hidden', { action: script(SLOW) }));
    await untilStatus(store, id, 'running');
    const { context, page } = await logIn();
    await page.goto(`${origin}/runs/${id}`);
    const steps = page.locator('[data-log-lines] .fg4');
    await steps.nth(3).waitFor();
    await hide(page, true);
    const count = await steps.count();
    const before = await store.runLogs.lastPosition(id);
    await expect.poll(() => store.runLogs.lastPosition(id), { timeout: 20_000 }).not.toBe(before);
    await page.waitForTimeout(500);
    expect((await steps.count()) - count).toBeLessThan(3);
    await hide(page, false);
    await steps.nth(count + 5).waitFor();
    const texts = await steps.allTextContents();
    expect(texts).toEqual(texts.map((_, index) => `step ${index + 1}`));
    await store.runs.cancel(id);
    await context.close();
  });

  test('the overview shows how things are now, without being loaded again, and asks for nothing in a hidden tab', async () => {
    const automation = await createTriggered(store, 'overseen', { action: script('') });
    const { context, page, name } = await logIn();
    await page.clock.install();
    await page.goto(origin);
    await page.getByText('live', { exact: true }).waitFor();
    await page.evaluate('window.isSame = true');
    const latest = page.locator('[data-part="latest"]');
    expect(await latest.getByText('overseen').count()).toBe(0);
    await acceptRun(store, automation);
    await page.clock.runFor(5000);
    await latest.getByText('overseen').waitFor();

    let requests = 0;
    page.on('request', () => {
      requests += 1;
    });
    await hide(page, true);
    await page.clock.runFor(60_000);
    expect(requests).toBe(0);
    const other = await createTriggered(store, 'overseen-too', { action: script('') });
    await acceptRun(store, other);
    await hide(page, false);
    await latest.getByText('overseen-too').first().waitFor();

    // What the keyboard is on stays.
    await latest.getByRole('link').first().focus();
    const accepted = page.locator('.card b').first();
    const before = await accepted.textContent();
    await acceptRun(store, automation);
    await page.clock.runFor(5000);
    await expect.poll(() => accepted.textContent()).not.toBe(before);
    expect(await page.evaluate('document.activeElement.tagName')).toBe('A');
    expect(await page.evaluate('window.isSame')).toBe(true);

    await store.operators.endSessions(name);
    await page.clock.runFor(5000);
    await page.getByText('not live: load the page again').waitFor();
    await context.close();
  });

  test('new runs are offered without moving what is being read', async () => {
    const automation = await createTriggered(store, 'offered', { action: script('') });
    const first = await acceptRun(store, automation);
    const { context, page } = await logIn();
    await page.goto(`${origin}/runs?automation=offered`);
    const links = page.locator('table.runs tbody tr');
    expect(await links.count()).toBe(1);
    const box = await links.first().boundingBox();
    const second = await acceptRun(store, automation);
    const offer = page.getByRole('link', { name: '1 new run' });
    await offer.waitFor({ timeout: 20_000 });
    expect(await links.count()).toBe(1);
    expect((await links.first().boundingBox())?.y).toBe(box?.y);
    await offer.click();
    await page.getByRole('link', { name: second.slice(4, 22) }).waitFor();
    await page.getByRole('link', { name: first.slice(4, 22) }).waitFor();
    await context.close();
  });

  test('a time in a filter is one of the reader, as those on the page are', async () => {
    const { context, page } = await logIn({ timezoneId: 'Europe/Berlin' });
    await page.goto(`${origin}/runs`);
    await page.getByLabel('From').fill('2026-01-31T18:00');
    await page.getByLabel('To', { exact: true }).fill('1h');
    await page.getByRole('button', { name: 'Filter' }).click();
    await page.waitForURL((url) => url.searchParams.get('since') === '2026-01-31T17:00:00.000Z');
    expect(new URL(page.url()).searchParams.get('until')).toBe('1h');
    await context.close();
  });

  test('everything is read without script', async () => {
    const print = script("console.log('\\x1b[32mwithout script\\x1b[0m')");
    const id = await acceptRun(store, await createTriggered(store, 'plain', { action: print }));
    await untilStatus(store, id, 'succeeded');
    const { context, page } = await logIn({ javaScriptEnabled: false });
    await page.getByRole('link', { name: 'Runs', exact: true }).click();
    await page.getByLabel('Automation').fill('plain');
    await page.getByRole('button', { name: 'Filter' }).click();
    await page.getByRole('link', { name: id.slice(4, 22) }).click();
    expect(await page.getByRole('region', { name: 'Log of the run' }).textContent()).toContain(
      'without script',
    );
    // Controls that need script are not there.
    expect(await page.getByRole('button', { name: 'Wrap' }).count()).toBe(0);
    await page.getByText('Retry…').click();
    await page.getByRole('button', { name: 'Start a new run' }).click();
    await page.getByRole('link', { name: id.slice(4, 22) }).waitFor();
    await context.close();
  });

  test('the keyboard alone opens a run, searches its log, and retries it', async () => {
    const print = script("for (let i = 0; i < 300; i++) console.log('line ' + i)");
    const id = await acceptRun(store, await createTriggered(store, 'keys', { action: print }));
    await untilStatus(store, id, 'succeeded');
    const { context, page } = await logIn();
    const tabTo = async (name: string) => {
      for (let count = 0; count < 60; count++) {
        await page.keyboard.press('Tab');
        const text = await page.evaluate<string>(
          `(document.activeElement.getAttribute('placeholder') ?? document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent).trim()`,
        );
        if (text === name) return;
      }
      throw new Error(`${name} is not reached by Tab`);
    };
    await page.goto(`${origin}/runs?automation=keys`);
    await tabTo(id.slice(4, 22));
    await page.keyboard.press('Enter');
    await page.waitForURL(`**/runs/${id}`);
    await tabTo('Search');
    await page.keyboard.type('line 29');
    expect(await page.locator('[data-log-hits]').textContent()).toBe('1 of 11');
    await page.keyboard.press('Enter');
    expect(await page.locator('[data-log-hits]').textContent()).toBe('2 of 11');
    await tabTo('Log of the run');
    await page.goto(`${origin}/runs/${id}`);
    await tabTo('Retry…');
    await page.keyboard.press('Enter');
    await tabTo('Start a new run');
    await page.keyboard.press('Enter');
    await page.waitForURL((url) => !url.pathname.endsWith(id));
    await page.getByRole('link', { name: id.slice(4, 22) }).waitFor();
    await context.close();
  });

  test('a megabyte of escape sequences and markup, and names that try to inject, are text', async () => {
    const hostile = script(`
      const fs = require('node:fs');
      fs.writeFileSync(process.env.ORC_RESULT_FILE, JSON.stringify({ evil: ${JSON.stringify(EVIL)} }));
      fs.writeFileSync(process.env.ORC_ARTIFACTS_DIR + '/' + ${JSON.stringify(EVIL.replaceAll('/', ''))}, 'x');
      const piece = '\\x1b[31m\\x1b[1;7m<script>document.title="broken"</script>\\x1b]0;x\\x07\\x1b[2J\\x9b31m\\n';
      process.stdout.write(piece.repeat(Math.ceil(1048576 / piece.length)), () => {
        console.error(${JSON.stringify(EVIL)});
        process.exit(1);
      });`);
    const automation = await createTriggered(store, 'hostile', { name: EVIL, action: hostile });
    const id = await acceptRun(store, automation, JSON.stringify({ evil: EVIL }));
    await untilStatus(store, id, 'failed');
    const { context, page, complaints } = await logIn();
    for (const path of [`/runs/${id}`, '/runs', '/', '/automations', '/automations/hostile', '/audit']) {
      await page.goto(origin + path);
      expect(await page.title(), path).not.toBe('broken');
      expect(await page.locator('main script, main img').count(), path).toBe(0);
    }
    await page.goto(`${origin}/runs/${id}`);
    expect(await page.locator('[data-log-lines] .l').count()).toBeGreaterThan(500);
    expect(await page.locator('.artifacts a').textContent()).toBe(EVIL.replaceAll('/', ''));
    const downloading = page.waitForEvent('download');
    await page.locator('.artifacts a').click();
    expect((await downloading).url()).toContain(`/runs/${id}/artifacts/0`);
    expect(complaints).toEqual([]);
    await context.close();
  });

  describe('every page', () => {
    let paths: string[];

    beforeAll(async () => {
      const { built, failed, live } = await fillStore(store);
      paths = [
        '/',
        '/automations',
        '/new-automation',
        '/automations/build-shop',
        '/runs',
        '/workers',
        '/audit',
      ];
      paths.push(
        `/runs/${failed}`,
        `/runs/${live}`,
        `/runs/${built[0]}`,
        '/runs?automation=nobody',
        '/nothing',
      );
    });

    test.each(views)(
      'has no finding of axe and fits in a %s window of %i pixels',
      async (colorScheme, width) => {
        const { context, page, complaints } = await logIn({ colorScheme, viewport: { width, height: 900 } });
        for (const path of paths) {
          await page.goto(origin + path);
          for (const closed of await page.locator('details.ask > summary').all()) await closed.click();
          expect(await page.evaluate<number>('document.documentElement.scrollWidth'), path).toBe(width);
          await sound(page, path);
        }
        expect(complaints.filter((text) => !text.includes('404'))).toEqual([]);
        await context.close();
      },
    );
  });
});
