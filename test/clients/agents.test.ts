import { expect, test } from 'vitest';
import { findNpmProgram } from '../support/npm-program.ts';
import { runOrc } from '../support/orc.ts';
import { startWorkerProcess } from '../support/orc-process.ts';
import { startScriptedModel } from '../support/scripted-model.ts';
import { openTestStore } from '../support/store.ts';
import { openFolder } from '../worker/workbench.ts';
import { createRepository, git } from '../worker/workspace/repositories.ts';

/** How long an agent may take to be installed, to start and to work, in milliseconds. */
const AGENT_MS = 300_000;

const folder = openFolder();

/** What tells OpenCode to use a model on this machine, and to ask before it runs a command. */
function configuration(baseURL: string): string {
  const limit = { context: 100_000, output: 4096 };
  return JSON.stringify({
    ...{ model: 'stub/stub', small_model: 'stub/stub', autoupdate: false, share: 'disabled' },
    permission: { bash: 'ask' },
    provider: {
      stub: {
        npm: '@ai-sdk/openai-compatible',
        options: { baseURL, apiKey: 'x' },
        models: { stub: { name: 'Stub', tool_call: true, limit } },
      },
    },
  });
}

test(
  'OpenCode mends a repository: its first try fails the check, its second one is pushed, and the transcript tells both',
  async () => {
    const opencode = await findNpmProgram('opencode-ai', '1.18.33', 'opencode');
    const model = await startScriptedModel(['echo almost > code.txt', 'echo fixed > code.txt']);
    const repository = createRepository(folder('shop'), {
      'check.sh': 'grep -q fixed code.txt || { echo "code.txt is not fixed"; exit 1; }\n',
      'code.txt': 'broken\n',
    });
    const store = openTestStore();
    const env = { ...store.env, WORKSPACE_DIR: folder('workspaces') };
    const orc = async (...args: string[]) => (await runOrc(args, { env })).stdout;
    const worker = await startWorkerProcess(env);
    try {
      await orc(
        ...['automations', 'create', 'fix', '--agent', `'${opencode}' acp`, '--repo', repository.url],
        ...['--prompt', 'Make check.sh pass.', '--check', 'sh check.sh', '--protect', 'check.sh'],
        ...['--push', 'orc/{runId}', '--env', `OPENCODE_CONFIG_CONTENT=${configuration(model.url)}`],
      );
      await orc('trigger', 'fix', '-d', '{"title":"from a caller"}', '--wait', '--timeout', '4m');
      const run = JSON.parse(await orc('runs', 'show', '--last', 'fix', '--json'));
      expect(run.outcome).toMatchObject({
        ...{ status: 'succeeded', reason: 'check_passed' },
        agent: { checks: 2, stopReason: 'end_turn', branch: `orc/${run.id}` },
      });
      expect(git(repository.bare, 'show', `orc/${run.id}:code.txt`)).toBe('fixed');
      const transcript = await orc('runs', 'logs', run.id);
      expect(transcript).toContain('permission given, execute: echo almost > code.txt');
      expect(transcript).toContain('check 1 failed, exit code 1\n    code.txt is not fixed\n');
      expect(transcript).toContain('check 2 passed, exit code 0\n');
      // The model has both: the payload, and what the check said.
      expect(model.asked.join('\n')).toContain('from a caller');
      expect(model.asked.join('\n')).toContain('code.txt is not fixed');
    } finally {
      await worker.stop();
      model.close();
    }
  },
  AGENT_MS,
);
