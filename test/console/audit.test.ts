import { expect, test } from 'vitest';
import { openTestConsole } from '../support/console.ts';

const { get, store } = openTestConsole();

/** Appends so many entries, numbered from one. */
async function append(count: number): Promise<void> {
  for (let index = 1; index <= count; index += 1) {
    await store.audit.append({
      action: 'automation.change',
      subject: `deploy-${index}`,
      by: { user: 'root', host: 'web-1' },
      changes: [{ field: 'name', from: '<b>', to: `"><script>alert(${index})</script>` }],
    });
  }
}

test('before anything was changed, the audit page says so', async () => {
  await store.redis.del(store.keys.audit);
  expect((await get('/audit')).body).toContain('Nothing was changed yet.');
});

test('the audit page shows who changed what, escaped, in pages', async () => {
  await append(55);
  const { body } = await get('/audit', 'viewer');
  expect(body).toContain('root@web-1');
  expect(body).toContain('<a href="/automations/deploy-55">changed automation deploy-55</a>');
  expect(body).not.toMatch(/<script>|<b>/);
  expect(body.match(/<tr>/g)).toHaveLength(51);
  const [, older = ''] = /href="(\/audit\?before=[\d-]+)">Older/.exec(body) ?? [];
  const second = (await get(older)).body;
  expect(second).toContain('changed automation deploy-5<');
  expect(second.match(/<tr>/g)).toHaveLength(6);
  expect(second).not.toContain('Older');
});

test('a cursor that is none shows the latest entries', async () => {
  for (const before of ['x', '1', '%00', '1-1&before=2-2', '$', '-']) {
    expect((await get(`/audit?before=${before}`)).body).toContain('deploy-55');
  }
});
