import axe from 'axe-core';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readSite } from '../../src/pages/site.ts';
import { findChromium, launchChromium } from '../support/chromium.ts';
import { type OrcProcess, startApiProcess } from '../support/orc-process.ts';
import { openTestStore } from '../support/store.ts';

const program = await findChromium();

const paths = readSite().pages.map(({ path }) => path);
const SCHEMES = ['light', 'dark'] as const;
const WIDTHS = [1280, 360];
const views = paths.flatMap((path) =>
  SCHEMES.flatMap((scheme) => WIDTHS.map((width) => [path, scheme, width] as const)),
);

describe.runIf(program)('in Chromium', () => {
  const store = openTestStore();
  let api: OrcProcess & { url: string };
  let browser: Browser;

  beforeAll(async () => {
    api = await startApiProcess(store.env);
    if (program) browser = await launchChromium(program);
  });

  afterAll(async () => {
    await browser?.close();
    await api.stop();
  });

  /** Opens a page, and collects whatever the browser complains about and wherever it asks for something. */
  async function open(
    context: BrowserContext,
    url: string,
  ): Promise<{ page: Page; complaints: string[]; origins: Set<string> }> {
    const page = await context.newPage();
    const complaints: string[] = [];
    const origins = new Set<string>();
    page.on('console', (message) => complaints.push(message.text()));
    page.on('pageerror', ({ message }) => complaints.push(message));
    page.on('requestfailed', (request) => complaints.push(`${request.url()} failed`));
    page.on('request', (request) => origins.add(new URL(request.url()).origin));
    page.on('response', (response) => {
      if (response.status() >= 400) complaints.push(`${response.url()} is ${response.status()}`);
    });
    await page.goto(url, { waitUntil: 'load' });
    return { page, complaints, origins };
  }

  test.each(views)('%s in a %s window of %i pixels is sound', async (path, colorScheme, width) => {
    const context = await browser.newContext({ colorScheme, viewport: { width, height: 800 } });
    const { page, complaints, origins } = await open(context, api.url + path);
    // Buttons are what the script adds; without it they would be missing and nothing else would.
    expect(await page.getByRole('button', { name: 'Copy' }).count()).toBe(
      await page.locator('.code').count(),
    );
    const background = await page.evaluate<string>('getComputedStyle(document.body).backgroundColor');
    expect(background).toBe(colorScheme === 'light' ? 'rgb(255, 255, 255)' : 'rgb(18, 21, 19)');
    expect(await page.evaluate<number>('document.documentElement.scrollWidth')).toBe(width);

    await page.evaluate(axe.source);
    const { violations, passes } = await page.evaluate<axe.AxeResults>('axe.run()');
    expect(violations.map(({ id, nodes }) => [id, nodes.map(({ html }) => html)])).toEqual([]);
    expect(passes.map(({ id }) => id)).toContain('color-contrast');

    // The policy is in force: a script from within would have been refused.
    expect(complaints).toEqual([]);
    expect([...origins]).toEqual([api.url]);
    await context.close();
  });

  test('an inline script and a style from elsewhere are refused', async () => {
    const context = await browser.newContext();
    const { page, complaints } = await open(context, api.url);
    await page.evaluate(`{
      const script = document.createElement('script');
      script.textContent = 'window.isBroken = true';
      const style = document.createElement('link');
      style.rel = 'stylesheet';
      style.href = 'http://127.0.0.1:1/evil.css';
      document.head.append(script, style);
    }`);
    await expect
      .poll(() => complaints.filter((text) => text.includes('Content Security Policy')))
      .toHaveLength(2);
    expect(await page.evaluate('window.isBroken')).toBeUndefined();
    await context.close();
  });

  test.each([
    ['on this machine, where the page may use the clipboard', (url: string) => url],
    ['on a server without TLS, where it may not', (url: string) => url.replace('127.0.0.1', 'orc.test')],
  ])('every copy button copies its code, %s', async (_, originOf) => {
    const context = await browser.newContext();
    const permissions = ['clipboard-read', 'clipboard-write'];
    await context.grantPermissions(permissions, { origin: api.url });
    const { page: reader } = await open(context, api.url);
    const { page } = await open(context, `${originOf(api.url)}/docs/recipes`);
    const blocks = await page.locator('.code').all();
    expect(blocks.length).toBeGreaterThan(5);
    for (const block of blocks) {
      await page.bringToFront();
      await block.getByRole('button').click();
      await block.getByRole('button', { name: 'Copied' }).waitFor();
      await reader.bringToFront();
      const copied = await reader.evaluate<string>('navigator.clipboard.readText()');
      expect(copied.trimEnd()).toBe((await block.locator('code').textContent())?.trimEnd());
    }
    await context.close();
  });

  test('the keyboard reaches the content at once, and every place that scrolls', async () => {
    const context = await browser.newContext({ viewport: { width: 360, height: 800 } });
    const { page } = await open(context, `${api.url}/docs`);
    await page.keyboard.press('Tab');
    expect(await page.evaluate('document.activeElement.textContent')).toBe('Skip to the content');
    await page.keyboard.press('Enter');
    expect(await page.evaluate('document.activeElement.id')).toBe('main');
    const unreachable = `[...document.querySelectorAll('main *')].filter((element) =>
      element.scrollWidth > element.clientWidth && element.clientWidth > 0 && element.tabIndex < 0 &&
      getComputedStyle(element).overflowX === 'auto').map((element) => element.outerHTML)`;
    expect(await page.evaluate(unreachable)).toEqual([]);
    await context.close();
  });

  test('the contents beside a page mark the section that is read', async () => {
    const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
    const { page } = await open(context, `${api.url}/docs`);
    const marked = page.locator('.toc [aria-current]');
    await expect.poll(() => marked.allTextContents()).toEqual(['Authentication']);
    await page.evaluate("document.getElementById('limits').scrollIntoView()");
    await expect.poll(() => marked.allTextContents()).toEqual(['Limits']);
    await page.keyboard.press('End');
    await expect.poll(() => marked.allTextContents()).toEqual(['Versioning']);
    await context.close();
  });

  test('a link to an error leads to its section', async () => {
    const context = await browser.newContext();
    const { page } = await open(context, `${api.url}/docs/errors#queue_full`);
    const heading = page.getByRole('heading', { name: 'queue_full' });
    await expect.poll(async () => (await heading.boundingBox())?.y ?? -1).toBeLessThan(800);
    expect((await heading.boundingBox())?.y).toBeGreaterThanOrEqual(0);
    await context.close();
  });
});
