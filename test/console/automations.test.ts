import { expect, test } from 'vitest';
import { writeAutomationFile } from '../../src/ops/automation-yaml.ts';
import { openTestConsole } from '../support/console.ts';
import { acceptRun, createTriggered, FAILED, startConsumer } from '../support/runs.ts';
import { createAutomation } from '../support/store.ts';

const { get, store } = openTestConsole();

/** The slugs that a page lists. */
function slugsIn(body: string): string[] {
  return [...body.matchAll(/<a href="\/automations\/([^"/?]+)"><b>/g)].map(([, slug = '']) => slug);
}

test('without an automation, the list says what to do next, to an admin and to a viewer', async () => {
  expect((await get('/automations')).body).toContain('Create the first one');
  const { body } = await get('/automations', 'viewer');
  expect(body).toContain('An admin creates the first one.');
  expect(body).not.toContain('/new-automation');
});

test('all automations as YAML are what orc export prints, for admins only', async () => {
  const empty = await get('/automations.yaml');
  expect(empty.body).toBe(writeAutomationFile([]));
  const slugs = Array.from({ length: 120 }, (_, index) => `exported-${String(index).padStart(3, '0')}`);
  for (const slug of slugs) await createAutomation(store, slug, { onEnd: 'https://example.com/' });
  expect((await get('/automations')).body).toContain('href="/automations.yaml"');
  const { body, headers } = await get('/automations.yaml');
  expect(body).toBe(writeAutomationFile(await store.automations.list()));
  expect(body.match(/^ {2}exported-/gm)).toHaveLength(120);
  expect(body).not.toContain('whsec_');
  expect(headers['content-disposition']).toContain('attachment; filename="automations.yaml"');
  expect((await get('/automations.yaml', 'viewer')).statusCode).toBe(403);
  expect((await get('/automations', 'viewer')).body).not.toContain('automations.yaml');
  for (const slug of slugs) await store.automations.delete(slug);
});

test('the list shows state, action, limits, the last runs and the failures of each automation', async () => {
  const failing = await createTriggered(store, 'a-failing', { name: 'Fails', concurrency: 2, attempts: 1 });
  await createAutomation(store, 'b-disabled', { enabled: false });
  await createAutomation(store, 'c-paused', { rate: { limit: 60, windowMs: 60_000 } });
  await store.automations.setPaused('c-paused', true);
  await acceptRun(store, failing);
  const consumer = startConsumer(store, async () => FAILED);
  await expect.poll(() => store.index.countOpen(['a-failing'])).toEqual([0]);
  await consumer.close(1000);
  await acceptRun(store, failing);
  const { body } = await get('/automations', 'viewer');
  expect(slugsIn(body)).toEqual(['a-failing', 'b-disabled', 'c-paused']);
  expect(body).toContain('aria-label="last runs: 1 failed, 1 open"');
  expect(body).toContain('<b class="failed">1</b>');
  expect(body).toContain('2 at a time');
  expect(body).toContain('60/m');
  expect(body).toContain('1 waiting');
});

test.each([
  ['failing', ['a-failing']],
  ['disabled', ['b-disabled']],
  ['paused', ['c-paused']],
  ['nonsense', ['a-failing', 'b-disabled', 'c-paused']],
])('the filter %s shows those automations', async (filter, slugs) => {
  const found = async () => slugsIn((await get(`/automations?filter=${filter}`)).body);
  // The console looks at all automations every few seconds.
  await expect.poll(found, { timeout: 20_000, interval: 500 }).toEqual(slugs);
});

test('automations are found by the beginning of their slug; what cannot be one finds nothing and is text', async () => {
  expect(slugsIn((await get('/automations?search=b-')).body)).toEqual(['b-disabled']);
  expect(slugsIn((await get('/automations?search=B')).body)).toEqual(['b-disabled']);
  const { body } = await get(`/automations?search=${encodeURIComponent('"><script>alert(1)</script>')}`);
  expect(slugsIn(body)).toEqual([]);
  expect(body).toContain('Show all 3');
  expect(body).not.toContain('<script>alert');
});

test('pages of many automations have each of them once', async () => {
  const slugs = Array.from({ length: 120 }, (_, index) => `z-${String(index).padStart(3, '0')}`);
  for (const slug of slugs) await createAutomation(store, slug);
  const found: string[] = [];
  let address: string | undefined = '/automations?search=z-';
  for (let page = 0; address !== undefined && page < 5; page += 1) {
    const { body } = await get(address);
    found.push(...slugsIn(body));
    const next: RegExpExecArray | null = /<a class="btn" href="([^"]+)">Next page/.exec(body);
    address = next?.[1]?.replaceAll('&amp;', '&');
  }
  expect(found).toEqual(slugs);
});

test('names that try to inject are text', async () => {
  await createAutomation(store, 'evil', { name: '</b><img src=x onerror=alert(1)>\u202e' });
  for (const path of ['/automations?search=evil', '/automations/evil']) {
    const { body } = await get(path);
    expect(body).toContain('&lt;img src=x onerror=alert(1)>');
    expect(body).not.toContain('<img src=x');
    expect(body).not.toContain('\u202e');
  }
});
