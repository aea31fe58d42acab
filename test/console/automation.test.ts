import { describe, expect, test } from 'vitest';
import type { AutomationDefinition } from '../../src/core/automation.ts';
import { openTestConsole } from '../support/console.ts';
import { takeableRuns } from '../support/runs.ts';
import { command, createAutomation } from '../support/store.ts';

const { get, post, store } = openTestConsole();

const COMMAND = { type: 'command', enabled: 'on', 'command.command': "python3 -c 'print(1)'" };

/** What the form shows in its fields, as a browser would send it. */
function valuesIn(body: string): Record<string, string> {
  const text = (html: string) =>
    html.replace(
      /&(lt|gt|quot|amp);/g,
      (_, name) => ({ lt: '<', gt: '>', quot: '"', amp: '&' })[name as 'lt'] ?? '',
    );
  const inputs = [...body.matchAll(/<input ([^>]*)>/g)].flatMap(([, attributes = '']) => {
    const value = (name: string) => new RegExp(`(?:^| )${name}="([^"]*)"`).exec(attributes)?.[1];
    const isOff = /type="(radio|checkbox)"/.test(attributes) && !/ checked/.test(attributes);
    const name = value('name');
    return name === undefined || isOff
      ? []
      : [[name, text(value('value') ?? (/type="checkbox"/.test(attributes) ? 'on' : ''))]];
  });
  const areas = [...body.matchAll(/<textarea [^>]*name="([^"]*)"[^>]*>([^<]*)<\/textarea>/g)].map(
    ([, name, value = '']) => [name, text(value)],
  );
  const choices = [...body.matchAll(/<select [^>]*name="([^"]*)"[^>]*>(.*?)<\/select>/g)].map(
    ([, name, options = '']) => [
      name,
      /<option (?:selected value="([^"]*)"|value="([^"]*)" selected|selected)/
        .exec(options)
        ?.slice(1)
        .find(Boolean) ?? '',
    ],
  );
  return Object.fromEntries([...inputs, ...areas, ...choices]);
}

/** The API key or the signing secret that a page shows. */
function secretIn(body: string, id: string): string {
  return new RegExp(`id="${id}">([^<]*)<`).exec(body)?.[1] ?? '';
}

describe('creating', () => {
  test('shows the key once, with a line of curl; it works, and no page has it again', async () => {
    const page = await post('/new-automation', { ...COMMAND, slug: 'fresh' });
    expect(page.statusCode).toBe(201);
    const apiKey = secretIn(page.body, 'api-key');
    expect(apiKey).toMatch(/^orc_/);
    expect(page.body).toContain(
      `curl -X POST http://localhost:3000/orc/api/automation-triggers/fresh -H 'x-api-key: ${apiKey}'`,
    );
    expect(page.headers['cache-control']).toBe('no-store');
    expect(await store.automations.authenticate('fresh', apiKey)).toMatchObject({ status: 'authenticated' });
    expect((await get('/automations/fresh')).body).not.toContain(apiKey);
    const again = await post('/new-automation', { ...COMMAND, slug: 'fresh' });
    expect(again.statusCode).toBe(409);
    expect(again.body).toContain('already exists and was not changed');
    expect(again.body).not.toContain(apiKey);
    expect((await store.automations.get('fresh'))?.action).toEqual(command('python3', '-c', 'print(1)'));
  });

  test.each([
    ['http', { 'http.url': 'https://example.com/hook' }, { type: 'http', url: 'https://example.com/hook' }],
    [
      'agent',
      { 'agent.agent': 'opencode acp', 'agent.prompt': 'Fix\r\nit', 'agent.env': 'A=b=c\nD= e ' },
      { type: 'agent', agent: 'opencode acp', prompt: 'Fix\nit', env: { A: 'b=c', D: ' e ' } },
    ],
  ])('takes an action of the type %s; fields of other types do not count', async (type, fields, action) => {
    const foreign = { 'command.command': 'left-over' };
    const page = await post('/new-automation', {
      ...foreign,
      ...fields,
      type,
      slug: `kind-${type}`,
      enabled: 'on',
    });
    expect(page.statusCode).toBe(201);
    expect((await store.automations.get(`kind-${type}`))?.action).toMatchObject(action);
    expect(secretIn(page.body, 'signing-secret').startsWith('whsec_')).toBe(type === 'http');
  });

  test('takes every setting of an automation', async () => {
    const settings = {
      ...{
        name: 'All',
        timeout: '5m',
        attempts: '3',
        concurrency: '2',
        whenBusy: 'skip',
        rate: '60/m',
        keepRuns: '9',
      },
      ...{ onWorkerLoss: 'fail', onFailure: 'https://example.com/x', schema: '{"type":"object"}' },
    };
    await post('/new-automation', { ...COMMAND, ...settings, enabled: '', slug: 'all' });
    expect(await store.automations.get('all')).toMatchObject({
      ...{
        name: 'All',
        enabled: false,
        timeoutMs: 300_000,
        attempts: 3,
        concurrency: 2,
        whenBusy: 'skip',
        keepRuns: 9,
      },
      ...{ rate: { limit: 60, windowMs: 60_000 }, onWorkerLoss: 'fail', onFailure: 'https://example.com/x' },
      schema: { type: 'object' },
    });
  });

  test.each<[string, Record<string, string>, string, string]>([
    ['a slug that is none', { slug: 'Not A Slug' }, 'slug', 'is not a slug. Use lower-case letters'],
    [
      'no command',
      { 'command.command': ' ' },
      'command.command',
      'Command must be a list of texts, the program first',
    ],
    [
      'an open quote',
      { 'command.command': "a 'b" },
      'command.command',
      'Command has a quote that is not closed.',
    ],
    [
      'a relative directory',
      { 'command.cwd': 'srv' },
      'command.cwd',
      'must be the absolute path of a directory',
    ],
    [
      'a line that is no variable',
      { 'command.env': 's3cret' },
      'command.env',
      'Variables takes one KEY=VALUE per line.',
    ],
    [
      'a reserved variable',
      { 'command.env': 'ORC_X=1' },
      'command.env',
      'names that begin with ORC_ are reserved',
    ],
    ['a wrong duration', { timeout: 'soon' }, 'timeout', 'Timeout must be a number with a unit'],
    ['too many attempts', { attempts: '1000' }, 'attempts', 'Attempts must be a whole number from 1 to 100'],
    ['a text as a number', { attempts: 'many' }, 'attempts', "not 'many'"],
    ['skip without a limit', { whenBusy: 'skip' }, 'whenBusy', 'When busy skip needs a concurrency.'],
    ['a schema that is no JSON', { schema: '{' }, 'schema', 'Payload schema is not JSON'],
    [
      'a schema that is none',
      { schema: '{"type":"thing"}' },
      'schema',
      'Payload schema is not accepted: /type',
    ],
    ['the path of a schema', { schema: '"/etc/passwd"' }, 'schema', 'is not accepted: must be a JSON object'],
  ])('refuses %s beside its field, and keeps what was typed', async (_, wrong, input, words) => {
    const page = await post('/new-automation', {
      ...COMMAND,
      slug: 'wrong',
      name: 'Typed "before"',
      ...wrong,
    });
    expect(page.statusCode).toBe(422);
    const beside = new RegExp(`id="wrong-${input}">([^<]*)<`).exec(page.body)?.[1] ?? '';
    expect(beside.replaceAll('&quot;', '"')).toContain(words);
    expect(valuesIn(page.body)).toMatchObject({ name: 'Typed "before"', [input]: wrong[input] });
    expect(await store.automations.get('wrong')).toBeUndefined();
  });

  test('says that a command is code on the workers, and is for admins only', async () => {
    expect((await get('/new-automation')).body).toContain('to execute code on the workers');
    expect((await get('/new-automation', 'viewer')).statusCode).toBe(403);
    expect((await post('/new-automation', { ...COMMAND, slug: 'by-viewer' }, 'viewer')).statusCode).toBe(403);
    expect(await store.automations.get('by-viewer')).toBeUndefined();
  });
});

describe('editing', () => {
  const SECRETIVE: Partial<AutomationDefinition> = {
    action: {
      ...{ type: 'command', argv: ['curl', 'https://u:covert1@example.com/?token=covert2', 'a b'] },
      ...{ env: { TOKEN: 'covert3', LINES: 'covert4\ncovert5' }, passEnv: ['HOME'] },
    },
    ...{ onEnd: 'https://example.com/?key=covert6', concurrency: 3, onWorkerLoss: 'fail', timeoutMs: 1500 },
  };

  test('a form that is saved as it is shown changes nothing, and has no secrets', async () => {
    await createAutomation(store, 'kept', SECRETIVE);
    const before = await store.automations.get('kept');
    const { body } = await get('/automations/kept/edit');
    expect(body).not.toContain('covert');
    const saved = await post('/automations/kept/edit', valuesIn(body));
    expect(saved.statusCode).toBe(303);
    const { updatedAt: _, ...after } = (await store.automations.get('kept')) ?? {};
    expect(before).toMatchObject(after);
  });

  test('what is typed over changes, and hidden parts stay', async () => {
    const { body } = await get('/automations/kept/edit');
    const values = valuesIn(body);
    const env = 'TOKEN=***\nNEW=1';
    const words = values['command.command']?.replace('a b', 'c d');
    const saved = await post('/automations/kept/edit', {
      ...values,
      'command.command': words ?? '',
      'command.env': env,
    });
    expect(saved.statusCode).toBe(303);
    expect((await store.automations.get('kept'))?.action).toMatchObject({
      argv: ['curl', 'https://u:covert1@example.com/?token=covert2', 'c d'],
      env: { TOKEN: 'covert3', NEW: '1' },
    });
  });

  test('a hidden part cannot be saved as its stars', async () => {
    const values = valuesIn((await get('/automations/kept/edit')).body);
    const page = await post('/automations/kept/edit', { ...values, onEnd: 'https://example.org/?key=***' });
    expect(page.statusCode).toBe(422);
    expect(page.body).toContain('Event on end contains ***, which stands for a part that is not shown');
  });

  test('an agent without any permitted tool does not get the usual ones when something else is edited', async () => {
    const agent = {
      type: 'agent',
      agent: 'opencode acp',
      prompt: 'Look',
      allow: [],
      protect: [],
      gitEnv: [],
      env: {},
      passEnv: [],
    };
    await createAutomation(store, 'careful', { action: agent as never });
    const values = valuesIn((await get('/automations/careful/edit')).body);
    await post('/automations/careful/edit', { ...values, name: 'Renamed' });
    expect(await store.automations.get('careful')).toMatchObject({ name: 'Renamed', action: { allow: [] } });
  });

  test("somebody else's change is not overwritten unseen", async () => {
    await createAutomation(store, 'shared');
    const values = valuesIn((await get('/automations/shared/edit')).body);
    await store.automations.setEnabled('shared', false);
    const page = await post('/automations/shared/edit', { ...values, name: 'Mine' });
    expect(page.statusCode).toBe(422);
    expect(page.body).toContain('Somebody else changed shared in the meantime.');
    expect(valuesIn(page.body)['name']).toBe('Mine');
    expect((await post('/automations/shared/edit', valuesIn(page.body))).statusCode).toBe(303);
    expect((await store.automations.get('shared'))?.name).toBe('Mine');
  });

  test('a signing secret that a change issues is shown once', async () => {
    await createAutomation(store, 'signs');
    const values = valuesIn((await get('/automations/signs/edit')).body);
    const page = await post('/automations/signs/edit', { ...values, onEnd: 'https://example.com/' });
    expect(secretIn(page.body, 'signing-secret')).toMatch(/^whsec_/);
    expect((await get('/automations/signs')).body).not.toContain('whsec_');
  });
});

describe('changing', () => {
  test('pauses, resumes, disables and enables', async () => {
    await createAutomation(store, 'switched');
    for (const [verb, expected] of [
      ['pause', { pausedAt: expect.any(Date) }],
      ['resume', { enabled: true }],
      ['disable', { enabled: false }],
      ['enable', { enabled: true }],
    ] as const) {
      const answer = await post(`/automations/switched/${verb}`);
      expect(answer.headers.location).toBe('/automations/switched');
      expect(await store.automations.get('switched')).toMatchObject(expected);
    }
    expect((await store.automations.get('switched'))?.pausedAt).toBeUndefined();
  });

  /** What the page of an automation says that it has shown. */
  const seenOf = async (slug: string) =>
    / name="seen" value="([^"]+)"/.exec((await get(`/automations/${slug}`)).body)?.[1] ?? '';

  test('issues a new key with a grace period, which is checked, and only one for a page', async () => {
    const apiKey = await createAutomation(store, 'rotated');
    const seen = await seenOf('rotated');
    const wrong = await post('/automations/rotated/rotate-key', { seen, grace: 'a while' });
    expect(wrong.statusCode).toBe(422);
    expect(wrong.body).toContain('is not a duration');
    const page = await post('/automations/rotated/rotate-key', { seen, grace: '1h' });
    expect(secretIn(page.body, 'api-key')).toMatch(/^orc_/);
    expect(page.body).toContain('The old key stays valid until');
    expect(await store.automations.authenticate('rotated', apiKey)).toMatchObject({
      status: 'authenticated',
    });
    // The answer loaded again.
    const again = await post('/automations/rotated/rotate-key', { seen, grace: '1h' });
    expect([again.statusCode, again.body.includes('Nothing new was issued')]).toEqual([409, true]);
    expect(await store.automations.authenticate('rotated', apiKey)).toMatchObject({
      status: 'authenticated',
    });
    await post('/automations/rotated/rotate-key', { seen: await seenOf('rotated'), grace: '0' });
    expect(await store.automations.authenticate('rotated', apiKey)).toMatchObject({ status: 'rejected' });
  });

  test('issues a new signing secret only where something is signed', async () => {
    await createAutomation(store, 'unsigned');
    const unsigned = { seen: await seenOf('unsigned'), grace: '1h' };
    expect((await post('/automations/unsigned/rotate-secret', unsigned)).body).toContain('no signing secret');
    await createAutomation(store, 'signed', { onEnd: 'https://example.com/' });
    const seen = await seenOf('signed');
    const page = await post('/automations/signed/rotate-secret', { seen, grace: '1h' });
    expect(secretIn(page.body, 'signing-secret')).toMatch(/^whsec_/);
    const again = await post('/automations/signed/rotate-secret', { seen, grace: '1h' });
    expect(again.statusCode).toBe(409);
  });

  test('deletes only what was typed, and is asked for by typing the slug', async () => {
    await createAutomation(store, 'doomed');
    const wrong = await post('/automations/doomed/delete', { slug: '<script>' });
    expect(wrong.statusCode).toBe(422);
    expect(wrong.body).toContain('Nothing was deleted');
    expect(await store.automations.get('doomed')).toBeDefined();
    expect((await post('/automations/doomed/delete', { slug: 'doomed' })).headers.location).toBe(
      '/automations',
    );
    expect(await store.automations.get('doomed')).toBeUndefined();
  });

  test('starts a run with a payload, byte for byte, as its operator', async () => {
    await createAutomation(store, 'started');
    const answer = await post('/automations/started/run', { payload: '{"big": 12345678901234567890}' });
    const runId = /^\/runs\/(run_.*)$/.exec(String(answer.headers.location))?.[1] ?? '';
    expect(await store.runs.payload(runId)).toBe('{"big": 12345678901234567890}');
    expect((await store.runs.get(runId))?.caller).toEqual({ user: 'ada', host: 'console' });
    expect(await takeableRuns(store)).toContain(runId);
  });

  test.each([
    ['[1]', 'The payload is not a JSON object.'],
    ['{', 'The payload is not valid JSON.'],
    ['{"text":"</textarea><script>alert(1)</script>"', 'The payload is not valid JSON.'],
  ])('refuses the payload %s and keeps it', async (payload, words) => {
    await createAutomation(store, 'picky').catch(() => undefined);
    const page = await post('/automations/picky/run', { payload });
    expect(page.statusCode).toBe(422);
    expect(page.body).toContain(words);
    expect(valuesIn(page.body)['payload']).toBe(payload);
    expect(page.body).not.toContain('<script>alert');
  });

  test.each(['enable', 'disable', 'pause', 'resume', 'rotate-key', 'rotate-secret', 'delete', 'run', 'edit'])(
    'a viewer may not %s',
    async (verb) => {
      await createAutomation(store, `seen-${verb}`, { onEnd: 'https://example.com/' });
      const before = await store.automations.get(`seen-${verb}`);
      expect(
        (await post(`/automations/seen-${verb}/${verb}`, { slug: `seen-${verb}`, grace: '0' }, 'viewer'))
          .statusCode,
      ).toBe(403);
      expect(await store.automations.get(`seen-${verb}`)).toEqual(before);
    },
  );

  test('every change is in the audit log with its operator, and no secret is', async () => {
    const entries = await store.audit.list({ limit: 1000 });
    expect(entries.every(({ by }) => 'operator' in by && by.operator === 'ada')).toBe(true);
    const actions = new Set(entries.map(({ action }) => action));
    for (const verb of [
      'create',
      'change',
      'pause',
      'resume',
      'disable',
      'enable',
      'rotate-key',
      'rotate-secret',
      'delete',
    ]) {
      expect(actions).toContain(`automation.${verb}`);
    }
    expect(actions).toContain('run.trigger');
    expect(JSON.stringify(entries)).not.toMatch(/orc_[0-9A-Za-z]{40}|whsec_|covert/);
  });
});

test('an automation is shown to a viewer without secrets and without ways to change it', async () => {
  const { body, statusCode } = await get('/automations/kept', 'viewer');
  expect(statusCode).toBe(200);
  expect(body).toContain('TOKEN');
  expect(body).not.toContain('covert');
  expect(body).not.toMatch(/<form method="post" action="\/automations/);
  expect((await get('/automations/kept/edit', 'viewer')).statusCode).toBe(403);
  expect((await get('/automations/kept/yaml', 'viewer')).statusCode).toBe(403);
});

test('as YAML, an admin gets what orc apply reads', async () => {
  const { body } = await get('/automations/all/yaml');
  expect(body).toContain('automations:\n  all:');
  expect(body).toContain('command: [python3, -c, print(1)]');
});

test('an automation that is not there is said to be missing, whatever its name', async () => {
  for (const slug of ['missing', '..%2f..%2fetc', '%3Cscript%3E']) {
    expect((await get(`/automations/${slug}`)).statusCode).toBe(404);
    expect((await post(`/automations/${slug}/delete`, { slug })).statusCode).toBe(404);
  }
});
