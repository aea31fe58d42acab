import { execFileSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { afterAll, describe, expect, onTestFinished, test } from 'vitest';
import { scriptedAgent } from '../support/agents.ts';
import { startWorkerProcess } from '../support/orc-process.ts';
import { startSshServer } from '../support/ssh-server.ts';
import { openTestStore } from '../support/store.ts';
import { acceptRuns, eventually, openFolder, readLog } from '../worker/workbench.ts';
import { createRepository, git } from '../worker/workspace/repositories.ts';

const folder = openFolder();
const server = await startSshServer(folder('ssh'));
afterAll(() => server?.stop());

/** Starts an SSH agent that holds the key; returns its socket. */
function startSshAgent(key: string): string {
  const socket = folder('ssh-agent');
  const [, pid] = /SSH_AGENT_PID=(\d+)/.exec(String(execFileSync('ssh-agent', ['-s', '-a', socket]))) ?? [];
  onTestFinished(() => void process.kill(Number(pid)));
  execFileSync('ssh-add', ['-q', key], { env: { ...process.env, SSH_AUTH_SOCK: socket }, stdio: 'ignore' });
  return socket;
}

describe.runIf(server)('a repository of an SSH server that lets in a key', () => {
  const { url = '', key = '', knownHosts = '' } = server ?? {};
  const ssh = `ssh -F /dev/null -o BatchMode=yes -o UserKnownHostsFile=${knownHosts}`;

  /** The worker's variables, and what the automation says of them. */
  const LOGINS: Record<string, () => { env: NodeJS.ProcessEnv; gitEnv: string[] }> = {
    'an SSH agent of the worker': () => {
      const home = folder('home');
      mkdirSync(home);
      writeFileSync(`${home}/.gitconfig`, `[core]\n\tsshCommand = ${ssh} -o IdentityFile=none\n`);
      return { env: { HOME: home, SSH_AUTH_SOCK: startSshAgent(key) }, gitEnv: [] };
    },
    '--git-env GIT_SSH_COMMAND': () => ({
      env: { HOME: folder('no-home'), GIT_SSH_COMMAND: `${ssh} -i ${key}` },
      gitEnv: ['GIT_SSH_COMMAND'],
    }),
  };

  test.each(Object.keys(LOGINS))(
    'is cloned, fetched and pushed to with %s, of which the agent sees nothing',
    async (name) => {
      const { env, gitEnv } = LOGINS[name]?.() ?? { env: {}, gitEnv: [] };
      const repository = createRepository(folder(`shop-${gitEnv.length}`), { 'code.txt': 'first' });
      const store = openTestStore();
      const look = 'env > "$ORC_ARTIFACTS_DIR/env"; git remote -v; cat code.txt; echo " fixed" >> code.txt';
      const repo = `${url}${repository.bare}`;
      const worker = await startWorkerProcess({
        ...store.env,
        ...env,
        WORKSPACE_DIR: folder(`work-${gitEnv.length}`),
      });
      onTestFinished(async () => void (await worker.stop()));
      const fix = async (slug: string) => {
        const changes = { repo, ref: 'main', gitEnv, push: `${slug}/{runId}`, check: 'grep fixed code.txt' };
        const action = scriptedAgent([[{ ask: { title: 'look', kind: 'execute', run: look } }]], changes);
        const [id = ''] = await acceptRuns(store, slug, { action, attempts: 1 });
        await eventually(async () => (await store.runs.get(id))?.status).not.toMatch(/queued|running/);
        const run = await store.runs.get(id);
        expect(run?.outcome).toMatchObject({ reason: 'check_passed', agent: { branch: `${slug}/${id}` } });
        return { id, pushed: git(repository.bare, 'show', `${slug}/${id}:code.txt`) };
      };
      expect((await fix('clone')).pushed).toBe('first fixed');
      repository.commit({ 'code.txt': 'second' });
      const { id, pushed } = await fix('fetch');
      expect(pushed).toBe('second fixed');
      expect(server?.log()).toContain('Accepted key');

      const { entries } = await readLog(store, id);
      const told = Buffer.concat(entries.map(({ data }) => data)).toString();
      for (const canary of [key, knownHosts]) expect(told).not.toContain(dirname(canary));
      const file = await store.artifacts.open(id, 'env');
      let environment = '';
      for await (const chunk of file?.chunks ?? []) environment += chunk;
      expect(environment).toContain('ORC_WORKSPACE=');
      for (const canary of ['SSH_', 'GIT_SSH', dirname(key), ...Object.values(env)]) {
        expect(environment).not.toContain(canary);
      }
    },
  );

  test('a login without the key fails the run, and the message says what SSH said', async () => {
    const repository = createRepository(folder('closed'));
    const store = openTestStore();
    const worker = await startWorkerProcess({
      ...store.env,
      ...{
        HOME: folder('no-home'),
        WORKSPACE_DIR: folder('work'),
        GIT_SSH_COMMAND: `${ssh} -o IdentityFile=none`,
      },
    });
    onTestFinished(async () => void (await worker.stop()));
    const action = { ...scriptedAgent([]), repo: `${url}${repository.bare}`, gitEnv: ['GIT_SSH_COMMAND'] };
    const [id = ''] = await acceptRuns(store, 'fix', { action, attempts: 1 });
    await eventually(async () => (await store.runs.get(id))?.status).toBe('failed');
    expect((await store.runs.get(id))?.outcome).toMatchObject({
      reason: 'repo_unavailable',
      message: expect.stringMatching(
        /^The repository cannot be reached: .*\(publickey\)|Could not read from remote/,
      ),
    });
  });
});
