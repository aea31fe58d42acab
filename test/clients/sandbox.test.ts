import { execFileSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { delimiter, dirname } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { scriptedAgent } from '../support/agents.ts';
import { findDebianProgram } from '../support/debian-program.ts';
import { startWorkerProcess } from '../support/orc-process.ts';
import { ROOT } from '../support/repository.ts';
import type { Step } from '../support/scripted-agent.ts';
import { openTestStore } from '../support/store.ts';
import { acceptRuns, eventually, openFolder } from '../worker/workbench.ts';

const folder = openFolder();
const bwrap = await findDebianProgram({ names: ['bwrap'], packages: ['bubblewrap'], path: 'usr/bin/bwrap' });

/** Where the recipe finds bubblewrap, wherever it was unpacked. */
const programs = folder('bin');

/** The recipe, with the program of the scripted agent, which is not installed on this machine. */
const sandbox = folder('agent-sandbox');

function install(path: string, text: string): void {
  writeFileSync(path, text);
  chmodSync(path, 0o755);
}

/** Whether this machine lets a program have namespaces of its own. */
function canBeTried(): boolean {
  if (!bwrap) return false;
  const { LD_LIBRARY_PATH: libraries = '' } = bwrap.env;
  mkdirSync(programs);
  install(`${programs}/bwrap`, `#!/bin/sh\nLD_LIBRARY_PATH='${libraries}' exec '${bwrap.command}' "$@"\n`);
  const recipe = readFileSync(`${ROOT}docs/agents/agent-sandbox`, 'utf8');
  const agent = [`${ROOT}.test`, dirname(process.execPath)].map((path) => `--ro-bind '${path}' '${path}'`);
  install(sandbox, recipe.replace('--chdir', `${agent.join(' ')} --chdir`));
  try {
    execFileSync(`${programs}/bwrap`, ['--unshare-user', '--unshare-pid', '--ro-bind', '/', '/', 'true']);
    return true;
  } catch (error) {
    console.warn(`SKIPPED: bubblewrap cannot be used here: ${error}`);
    return false;
  }
}

/** Has a scripted agent run a shell command, and checks its workspace by another one. */
async function work(run: string, changes: { check: string; wrap?: string }): Promise<void> {
  const store = openTestStore();
  const PATH = [programs, process.env['PATH']].join(delimiter);
  const worker = await startWorkerProcess({ ...store.env, PATH });
  onTestFinished(async () => void (await worker.stop()));
  const steps: Step[] = [{ ask: { title: 'write', kind: 'execute', run } }];
  const action = scriptedAgent([steps], { checkAttempts: 1, ...changes });
  const [id = ''] = await acceptRuns(store, 'write', { action, attempts: 1 });
  await eventually(async () => (await store.runs.get(id))?.status).not.toMatch(/queued|running/);
  expect((await store.runs.get(id))?.outcome).toMatchObject({ reason: 'check_passed' });
}

describe.runIf(canBeTried())('an agent that writes outside of its workspace', () => {
  test('is not stopped without a sandbox', async () => {
    const outside = folder('open');
    await work(`echo in > inside.txt; echo out > '${outside}'`, { check: 'cat inside.txt' });
    expect(existsSync(outside)).toBe(true);
  });

  test('writes nothing and sees no other process in the sandbox of the documentation', async () => {
    const outside = folder('contained');
    const processes = 'ls /proc | grep -c "^[0-9]*$" > processes.txt';
    await work(`echo in > inside.txt; echo out > '${outside}'; echo out > /etc/orc-test; ${processes}`, {
      check: 'cat inside.txt && test "$(cat processes.txt)" -lt 8',
      wrap: sandbox,
    });
    expect(existsSync(outside)).toBe(false);
    expect(existsSync('/etc/orc-test')).toBe(false);
  });
});
