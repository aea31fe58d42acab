import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, onTestFinished, test } from 'vitest';
import { stateDirOf } from '../../src/local/data-folder.ts';
import { findLocal } from '../../src/local/find-local.ts';
import { freePort } from '../../src/local/free-port.ts';
import { postTrigger } from '../support/http.ts';
import { eventually, openFolder } from '../worker/workbench.ts';

const folder = openFolder();
const run = promisify(execFile);
const repository = fileURLToPath(new URL('../..', import.meta.url));

/** The user's environment, without what `npm test` says of the repository. */
const env = Object.fromEntries(
  Object.entries(process.env).filter(
    ([name]) =>
      !/^(npm_(?!config_)|npm_config_(local_prefix|ignore_scripts)$|INIT_CWD$|NODE_ENV$|VITEST)/.test(name),
  ),
);

test('the packed package, installed for all folders, runs with orc local in an empty one', {
  timeout: 300_000,
}, async () => {
  const app = folder('app');
  mkdirSync(app);
  await run('npm', ['pack', '--silent', '--pack-destination', folder('.')], { cwd: repository, env });
  const [tarball = ''] = readdirSync(folder('.')).filter((name) => name.endsWith('.tgz'));
  // As a user does it, install scripts included: what `npm ci` has fetched already is taken from npm's cache.
  expect(tarball).toMatch(/^orc-/);
  const prefix = folder('global');
  const options = [
    '--prefix',
    prefix,
    '--prefer-offline',
    '--no-audit',
    '--no-fund',
    '--ignore-scripts=false',
  ];
  await run('npm', ['install', '--global', ...options, folder(tarball)], { cwd: app, env });

  const executable = join(prefix, 'bin/orc');
  const orc = async (...args: string[]) => (await run(executable, args, { cwd: app, env })).stdout;
  expect(await orc('--help')).toContain('Usage: orc');
  const port = await freePort();
  const local = spawn(executable, ['local'], {
    cwd: app,
    env: { ...env, PORT: `${port}`, CONSOLE_PORT: '0' },
  });
  const ended = once(local, 'close');
  const { XDG_STATE_HOME, HOME } = process.env;
  const state = async () => (await findLocal(app, stateDirOf({ XDG_STATE_HOME, HOME }))).running;
  onTestFinished(async () => {
    if (local.exitCode === null) process.kill((await state())?.pid ?? Number.NaN, 'SIGTERM');
    await ended;
  });
  let apiKey = '';
  let elsewhere = '';
  for await (const line of createInterface({ input: local.stdout })) {
    apiKey ||= /orc_[0-9A-Za-z]{49}/.exec(line)?.[0] ?? '';
    elsewhere ||= /first: +(export .*)/.exec(line)?.[1] ?? '';
    if (line.startsWith('Ctrl-C')) break;
  }
  local.stdout.resume();
  const { apiUrl = '' } = (await state()) ?? {};
  const { status, body } = await postTrigger(apiUrl, 'hello', apiKey, '{"name":"world"}');
  expect([status, body['status']]).toEqual([202, 'queued']);
  await eventually(() => orc('runs', 'logs', String(body['runId']))).toContain('{"name":"world"}');
  for (const path of ['/', '/docs', '/docs/errors', '/llms.txt', '/openapi.json']) {
    const answer = await fetch(`${apiUrl}${path}`, { headers: { accept: 'text/html' } });
    expect([path, answer.status, (await answer.text()).length > 500]).toEqual([path, 200, true]);
  }
  const fromElsewhere = await run('sh', ['-c', `${elsewhere}\n"$0" automations list`, executable], {
    cwd: '/',
    env,
  });
  expect(fromElsewhere.stdout).toContain('hello');
  expect(await orc('export')).toContain('\n  hello:\n');
  const [, schema = ''] = /^ {2}(\/.*schema\.json)$/m.exec(await orc('apply', '--help')) ?? [];
  expect(JSON.parse(readFileSync(schema, 'utf8'))).toHaveProperty('properties.automations');
  expect(
    JSON.parse(await orc('doctor', '--json')).map(({ state: each }: { state: string }) => each),
  ).not.toContain('problem');
});
