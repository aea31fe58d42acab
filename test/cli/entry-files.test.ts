import { writeFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { runOrc } from '../support/orc.ts';
import { acceptRun, createTriggered } from '../support/runs.ts';
import { openTestStore } from '../support/store.ts';
import { openFolder } from '../worker/workbench.ts';

const store = openTestStore();
const folder = openFolder();
const orc = (...args: string[]) => runOrc(args, { env: store.env, cwd: folder('.') });

const SCHEMA = { type: 'object', required: ['ref'], properties: { ref: { pattern: '^refs/' } } };

function write(name: string, content: unknown): void {
  writeFileSync(folder(name), typeof content === 'string' ? content : JSON.stringify(content));
}

const storedSchema = async (slug: string) => (await store.automations.get(slug))?.schema;

test('create stores the schema of a file, show says that there is one, set changes it and removes it', async () => {
  write('a.json', SCHEMA);
  expect(await orc('automations', 'create', 'a', '--schema', 'a.json', '--', 'true')).toMatchObject({
    code: 0,
  });
  expect(await storedSchema('a')).toEqual(SCHEMA);
  expect((await orc('automations', 'show', 'a')).stdout).toMatch(/^payload +must fit its schema/m);
  expect(JSON.parse((await orc('automations', 'show', 'a', '--json')).stdout).schema).toEqual(SCHEMA);
  write('b.json', { ...SCHEMA, required: [] });
  const { stdout } = await orc('automations', 'set', 'a', '--schema', 'b.json');
  expect(stdout).toContain('schema.required: another value');
  expect(await storedSchema('a')).toEqual({ ...SCHEMA, required: [] });
  await orc('automations', 'set', 'a', '--unset', 'schema');
  expect(await storedSchema('a')).toBeUndefined();
  expect(await store.redis.hmget(store.keys.automation('a'), 'schema', 'schemaHash')).toEqual([null, null]);
  expect((await orc('automations', 'show', 'a')).stdout).toMatch(/^payload +any JSON object/m);
});

test.each([
  ['cannot be read', 'missing.json', undefined, /^orc: --schema \S*missing\.json cannot be read: ENOENT/],
  ['is not JSON', 'text.json', 'type: object', /^orc: --schema \S*text\.json is not JSON: /],
  [
    'is not accepted',
    'loop.json',
    { items: { $ref: '#' } },
    /^orc: --schema loop\.json is not accepted: \/items\/\$ref is recursive/,
  ],
])('a file that %s changes nothing', async (_, name, content, message) => {
  if (content !== undefined) write(name, content);
  const { code, stderr } = await orc('automations', 'create', 'refused', '--schema', name, '--', 'true');
  expect([code, stderr]).toEqual([1, expect.stringMatching(message)]);
  expect(await store.automations.get('refused')).toBeUndefined();
});

test('apply takes a schema that is written out or in a file beside it, and export gives it back', async () => {
  write('c.json', SCHEMA);
  write(
    'automations.yaml',
    `automations:
  inline: {command: [x], schema: {type: object, properties: {n: {maximum: 5}}}}
  file: {command: [x], schema: c.json}
`,
  );
  expect(await orc('apply', '-f', 'automations.yaml')).toMatchObject({ code: 0 });
  expect(await storedSchema('inline')).toEqual({ type: 'object', properties: { n: { maximum: 5 } } });
  expect(await storedSchema('file')).toEqual(SCHEMA);
  const { stdout } = await orc('export');
  write('exported.yaml', stdout);
  expect((await orc('apply', '-f', 'exported.yaml')).stdout).toContain('There is nothing to change.');
  expect((await orc('apply', '-f', 'automations.yaml', '--dry-run')).stdout).toContain(
    'There is nothing to change.',
  );
});

test('apply names every schema that is not accepted, and changes nothing', async () => {
  write(
    'wrong.yaml',
    `automations:
  x: {command: [x], schema: {pattern: '(?=a)'}}
  y:
    command: [x]
    schema: nowhere.json
  z: {command: [x]}
`,
  );
  const { code, stderr } = await orc('apply', '-f', 'wrong.yaml');
  expect(code).toBe(1);
  expect(stderr).toMatch(/wrong\.yaml:2: x\.schema is not accepted: \/pattern is not a pattern of RE2/);
  expect(stderr).toMatch(/wrong\.yaml:5: y\.schema \S*nowhere\.json cannot be read/);
  expect(await store.automations.get('z')).toBeUndefined();
});

test('trigger refuses a payload that does not fit', async () => {
  await createTriggered(store, 'checked', { schema: SCHEMA });
  const { code, stderr } = await orc('trigger', 'checked', '-d', '{}');
  expect([code, stderr]).toEqual([1, expect.stringContaining('must have the property "ref" (required)')]);
  expect(await orc('trigger', 'checked', '-d', '{"ref":"refs/a"}')).toMatchObject({ code: 0 });
});

test('retry refuses a payload that does not fit the schema of now', async () => {
  const automation = await createTriggered(store, 'stricter');
  const runId = await acceptRun(store, automation, '{"ref":"main"}');
  await store.runs.cancel(runId);
  write('d.json', SCHEMA);
  await orc('automations', 'set', 'stricter', '--schema', 'd.json');
  const { code, stderr } = await orc('runs', 'retry', runId);
  expect(code).toBe(1);
  expect(stderr).toContain(
    'does not fit the schema that stricter has now: /ref must match the pattern "^refs/"',
  );
  expect(await store.runs.list({ automation: 'stricter', limit: 10 })).toHaveLength(1);
});
