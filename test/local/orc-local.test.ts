import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { freePort } from '../../src/local/free-port.ts';
import { freePortWith } from '../support/free-ports.ts';
import { hasCommand, listProcesses, type MachineProcess } from '../support/machine.ts';
import { runOrc } from '../support/orc.ts';
import { type OrcProcess, runOrcProcess, startOrc } from '../support/orc-process.ts';

const run = promisify(execFile);

let cwd: string;
let port: string;
let local: OrcProcess;

beforeAll(async () => {
  cwd = await mkdtemp(join(tmpdir(), 'orc-local-'));
  port = String(await freePort());
});

afterAll(async () => {
  await local.stop('SIGINT');
  await rm(cwd, { recursive: true, force: true });
});

async function start(): Promise<OrcProcess> {
  const started = startOrc(['local'], { cwd, env: { PORT: port, CONSOLE_PORT: '0' } });
  await started.line('Ctrl-C stops everything');
  return started;
}

/** The processes that have something to do with a directory, by what they were started with. */
function processesOf(directory: string): MachineProcess[] {
  return listProcesses().filter(({ args }) => args.includes(directory));
}

function childrenOf(parent: number | undefined): MachineProcess[] {
  return listProcesses().filter((each) => each.parent === parent);
}

/** Does what a shell does with the line; without curl, what curl would do. */
async function paste(line: string): Promise<{ runId: string; status: string }> {
  if (hasCommand('curl')) return JSON.parse((await run('sh', ['-c', line])).stdout);
  const [, url = '', key = '', type = '', body = ''] =
    /^curl -X POST (\S+) -H 'x-api-key: (\S+)' -H 'content-type: (\S+)' -d '(.*)'$/.exec(line) ?? [];
  const headers = { 'x-api-key': key, 'content-type': type };
  return (await fetch(url, { method: 'POST', headers, body })).json() as never;
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

let apiKey: string;

test('the first start prints a curl line that starts a run when it is pasted into a shell', async () => {
  local = await start();
  const line = await local.line('curl ');
  apiKey = /orc_\w{49}/.exec(line)?.[0] ?? '';
  const { runId, status } = await paste(line.trim());
  expect(status).toBe('queued');

  const shown = await local.line(`${runId}  Hello`);
  expect(shown).toContain('hello succeeded');
  expect(shown).toContain('your payload is {"name":"world"}');
});

test('other commands typed in the same folder find the private Redis without any configuration', async () => {
  const { code, stdout } = await runOrc(['automations', 'list', '--json'], { cwd });
  expect(code).toBe(0);
  expect(JSON.parse(stdout)).toMatchObject([{ slug: 'hello', enabled: true }]);
});

test('the line for other folders, pasted into a shell, makes orc find the private Redis there', async () => {
  const [, line = ''] = /first: +(.*)/.exec(await local.line('In other folders')) ?? [];
  const { stdout } = await run('sh', ['-c', `${line}\norc automations list --json`], { cwd: tmpdir() });
  expect(JSON.parse(stdout)).toMatchObject([{ slug: 'hello' }]);
});

test('the link that it prints logs an admin in to the console, once', async () => {
  const [, origin = '', token = ''] =
    /(http:\/\/\S+)\/login\/(\S+)/.exec(await local.line('In a browser')) ?? [];
  const logIn = () =>
    fetch(`${origin}/login`, {
      method: 'POST',
      redirect: 'manual',
      headers: { 'sec-fetch-site': 'same-origin', 'content-type': 'application/x-www-form-urlencoded' },
      body: `token=${token}`,
    });
  const login = await logIn();
  expect(login.status).toBe(303);
  const cookie = login.headers.get('set-cookie')?.split(';', 1)[0] ?? '';
  expect(await (await fetch(`${origin}/`, { headers: { cookie } })).text()).toContain('(admin)');
  expect((await logIn()).status).toBe(401);
  // Not on the API's port.
  expect((await fetch(`http://127.0.0.1:${port}/login/${token}`)).status).toBe(404);
});

test('when the private Redis ends, orc says what its log ends with', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'orc-local-ending-'));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const env = { PORT: String(await freePort()), CONSOLE_PORT: '0' };
  const other = startOrc(['local'], { cwd: directory, env });
  await other.line('Ctrl-C stops everything');
  const redis = childrenOf(other.child.pid).find(({ args }) => args.includes('redis-server'));
  process.kill(redis?.pid ?? 0, 'SIGTERM');
  expect(await other.line('has ended')).toMatch(
    /^orc: The private Redis has ended; its log ends with: .*bye bye/,
  );
  await once(other.child, 'exit');
});

test('the private Redis listens on no port', async () => {
  const redis = processesOf(cwd).find(({ args }) => args.includes('redis-server'));
  expect(redis?.args).toMatch(/ --unixsocket \/\S+\.sock --unixsocketperm 700 --port 0 /);
});

test('a port that is taken is said in one sentence, before anything is started', async () => {
  const other = await mkdtemp(join(tmpdir(), 'orc-local-'));
  const { code, stdout, stderr } = await runOrcProcess(['local'], { cwd: other, env: { PORT: port } });
  expect(code).toBe(1);
  expect(stdout).toBe('');
  expect(stderr).toBe(
    `orc: Port ${port} is in use by another program. Choose another one, such as PORT=${Number(port) + 10}.\n`,
  );
  await rm(other, { recursive: true });
});

test('of a flood of wrong keys it shows a hundred a second, and how many more there were', async () => {
  const url = `http://127.0.0.1:${port}/orc/api/automation-triggers/hello`;
  for (let round = 0; round < 20; round += 1) {
    const refused = Array.from({ length: 50 }, () => fetch(url, { method: 'POST' }));
    for (const { status } of await Promise.all(refused)) expect([401, 429]).toContain(status);
  }
  expect(await local.line(' more were answered ')).toMatch(/! \d+ more were answered 4(01|29) \w+$/);
});

test('it says when its Redis cannot be used, and when triggers are accepted again', async () => {
  const redis = processesOf(cwd).find(({ args }) => args.includes('redis-server'));
  process.kill(redis?.pid ?? Number.NaN, 'SIGSTOP');
  try {
    await local.line('! api: health changed');
  } finally {
    process.kill(redis?.pid ?? Number.NaN, 'SIGCONT');
  }
  await local.line('✔ triggers are accepted again');
});

test('Ctrl-C, even when npm sends it twice, ends every process and keeps the data', async () => {
  local.child.kill('SIGINT');
  expect(await local.stop('SIGINT')).toBe(0);
  expect(processesOf(cwd)).toEqual([]);
  expect(await readdir(join(cwd, '.orc'))).toEqual(expect.arrayContaining(['appendonlydir']));
  expect(await readdir(join(cwd, '.orc'))).not.toContain('lock');
});

test('a second start goes on with the same data and the same keys', async () => {
  local = await start();
  expect(local.lines.join('\n')).not.toContain('orc_');
  const response = await fetch(`http://127.0.0.1:${port}/orc/api/automation-triggers/hello`, {
    method: 'POST',
    headers: { 'x-api-key': apiKey },
  });
  expect(response.status).toBe(202);
  const { runId } = (await response.json()) as { runId: string };
  await local.line(`${runId}  Hello`);
});

test('when one of its processes is killed, it says which one and ends the others', async () => {
  const worker = childrenOf(local.child.pid).find(({ args }) => args.endsWith(' worker'));
  process.kill(worker?.pid ?? Number.NaN, 'SIGKILL');
  await local.line('The worker process was ended by SIGKILL.');
  await once(local.child, 'close');
  expect(local.child.exitCode).toBe(1);
  expect(processesOf(cwd)).toEqual([]);
});

test('after it was killed itself, the next start takes over what it left running', async () => {
  local = await start();
  const children = childrenOf(local.child.pid).map(({ pid }) => pid);
  expect(children).toHaveLength(4);
  local.child.kill('SIGKILL');
  await local.stop();
  // What the version before went by, and a process that has got the same id since.
  const state = { pid: process.pid, redisUrl: '/none.sock', apiUrl: 'http://127.0.0.1:1' };
  await writeFile(join(cwd, '.orc', 'local.json'), JSON.stringify(state));
  local = await start();
  await expect.poll(() => children.filter(isAlive), { timeout: 15_000 }).toEqual([]);
  const { code } = await runOrc(['runs', 'list', '--json'], { cwd });
  expect(code).toBe(0);
  // As `timeout npm start` does: orc has the signal from it, and again from npm.
  local.child.kill('SIGTERM');
  await local.line('Stopping');
  expect(await local.stop('SIGTERM')).toBe(0);
  expect(processesOf(cwd)).toEqual([]);
});

test('with OPS_PORT the API has its private listener there, the worker one port further, and the console the next', async () => {
  const opsPort = await freePortWith(1, 2);
  local = startOrc(['local'], { cwd, env: { PORT: port, CONSOLE_PORT: '0', OPS_PORT: `${opsPort}` } });
  await local.line('Ctrl-C stops everything');
  const series = async (at: number) => (await fetch(`http://127.0.0.1:${at}/metrics`)).text();
  // The worker of the test before was killed, and counts until its last sign of life is too old.
  for (const each of [opsPort, opsPort + 1, opsPort + 2]) {
    await expect.poll(() => series(each), { timeout: 15_000 }).toContain('orc_workers_alive 1\n');
  }
  expect(await local.stop('SIGINT')).toBe(0);
});
