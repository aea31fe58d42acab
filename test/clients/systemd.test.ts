import { execFile } from 'node:child_process';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { BlockList, isIPv6 } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { LAST_RESORT_MS } from '../../src/cli/closing.ts';
import { readConfig } from '../../src/config.ts';
import { findDebianProgram } from '../support/debian-program.ts';
import { ORC } from '../support/orc-process.ts';
import { ROOT, readProjectFile } from '../support/repository.ts';

const FOLDER = 'docs/systemd';
const analyze = await findDebianProgram({
  names: ['systemd-analyze'],
  packages: ['systemd'],
  path: 'usr/bin/systemd-analyze',
});
const units = (await readdir(`${ROOT}${FOLDER}`)).map((name) => ({
  name,
  text: readProjectFile(`${FOLDER}/${name}`),
}));

test.each(units)('$name gives orc the time that it takes to end', ({ text }) => {
  const graceMs = Number(/^TimeoutStopSec=(\d+)s$/m.exec(text)?.[1]) * 1000;
  expect(graceMs).toBeGreaterThan(readConfig({}).SHUTDOWN_GRACE_MS + LAST_RESORT_MS);
});

test.each(['orc-worker', 'orc-agent-worker'])(
  'a worker alone is told to end, and outlives a command that the kernel ends for want of memory (%s)',
  (name) => {
    const { text = '' } = units.find((unit) => unit.name === `${name}.service`) ?? {};
    expect(text).toMatch(/^KillMode=mixed$/m);
    expect(text).toMatch(/^OOMPolicy=continue$/m);
  },
);

test('a worker for agents writes to one folder only, and reaches no network of the machine', () => {
  const { text = '' } = units.find(({ name }) => name === 'orc-agent-worker.service') ?? {};
  expect(text).toMatch(/^User=orc-agents$/m);
  expect(text).not.toContain('LoadCredential');
  for (const setting of ['ProtectSystem=strict', 'PrivateTmp=true', 'StateDirectory=orc-agents']) {
    expect(text).toMatch(new RegExp(`^${setting}$`, 'm'));
  }
  expect(text).not.toMatch(/^ReadWritePaths=/m);
  const environment = Object.fromEntries(
    [...text.matchAll(/^Environment=(\w+)=(.*)$/gm)].map(([, name, value]) => [name, value]),
  );
  expect(readConfig(environment).WORKSPACE_DIR).toBe('/var/lib/orc-agents');
  // An agent that could write git's configuration would be given what git logs in with.
  expect(environment['HOME']).not.toMatch(/^\/var\//);
  const [, denied = ''] = /^IPAddressDeny=(.*)$/m.exec(text) ?? [];
  const closed = new BlockList();
  for (const range of denied.split(' ')) {
    const [network = '', bits] = range.split('/');
    closed.addSubnet(network, Number(bits), isIPv6(network) ? 'ipv6' : 'ipv4');
  }
  for (const address of ['10.1.2.3', '169.254.169.254', '172.20.0.1', '192.168.1.1']) {
    expect([address, closed.check(address)]).toEqual([address, true]);
  }
  expect(closed.check('fd00:ec2::254', 'ipv6')).toBe(true);
});

test('all have users of their own, and only API and console, which run no commands, a file with the secret', () => {
  const [api = '', worker = '', operatorsConsole = ''] = ['orc-api', 'orc-worker', 'orc-console'].map(
    (name) => {
      const { text = '' } = units.find((unit) => unit.name === `${name}.service`) ?? {};
      expect(text).toMatch(new RegExp(`^User=${name}$`, 'm'));
      return text;
    },
  );
  for (const text of [api, operatorsConsole]) {
    expect(text).toMatch(/^LoadCredential=redis-url:/m);
    expect(text).toMatch(/^Environment=REDIS_URL_FILE=%d\/redis-url$/m);
  }
  expect(worker).not.toContain('LoadCredential');
  expect(worker).toMatch(/^EnvironmentFile=\/etc\/orc\/worker.env$/m);
});

describe.runIf(analyze)('systemd-analyze', () => {
  function run(...args: string[]): Promise<{ code: number | null; output: string }> {
    return new Promise((resolve) => {
      const { command = '', env } = analyze ?? {};
      const child = execFile(command, args, { env: { ...env, SYSTEMD_PAGER: '' } }, (_, stdout, stderr) =>
        resolve({ code: child.exitCode, output: stdout + stderr }),
      );
    });
  }

  /** Puts the units where orc and Node are installed elsewhere. */
  async function place(change: (text: string) => string = (text) => text): Promise<string[]> {
    const folder = await mkdtemp(join(tmpdir(), 'orc-systemd-'));
    onTestFinished(() => rm(folder, { recursive: true, force: true }));
    return Promise.all(
      units.map(async ({ name, text }) => {
        const path = join(folder, name);
        const installed = text
          .replace('/usr/local/lib/orc/node', process.execPath)
          .replace('/opt/orc/dist/orc.js', ORC);
        await writeFile(path, change(installed));
        return path;
      }),
    );
  }

  test('finds nothing wrong with the units', async () => {
    // Where systemd is only unpacked, it misses units of its own.
    expect((await run('verify', ...(await place()))).output).not.toContain('orc-');
    const misspelt = await place((text) => text.replace('NoNewPrivileges', 'NoNewPrivilege'));
    expect((await run('verify', ...misspelt)).output).toMatch(/Unknown key (name )?'NoNewPrivilege'/);
  });

  test.each([
    ['orc-api', '25'],
    ['orc-agent-worker', '30'],
  ])('counts %s among the services that are well shut off', async (name, threshold) => {
    const [unit = ''] = (await place()).filter((path) => path.includes(name));
    const { code, output } = await run('security', '--offline=true', `--threshold=${threshold}`, unit);
    expect([output, code]).toEqual([
      expect.stringMatching(new RegExp(`exposure level for ${name}.service: [12]\\.\\d OK`)),
      0,
    ]);
  });
});
