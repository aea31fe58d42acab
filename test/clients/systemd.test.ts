import { execFile } from 'node:child_process';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
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

test('a worker alone is told to end, and outlives a command that the kernel ends for want of memory', () => {
  const { text = '' } = units.find(({ name }) => name === 'orc-worker.service') ?? {};
  expect(text).toMatch(/^KillMode=mixed$/m);
  expect(text).toMatch(/^OOMPolicy=continue$/m);
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

  test('counts the API among the services that are well shut off', async () => {
    const [api = ''] = (await place()).filter((path) => path.includes('api'));
    const { code, output } = await run('security', '--offline=true', '--threshold=25', api);
    expect([output, code]).toEqual([
      expect.stringMatching(/exposure level for orc-api.service: [12]\.\d OK/),
      0,
    ]);
  });
});
