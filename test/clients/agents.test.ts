import { expect, test } from 'vitest';
import { openAgentStage } from '../support/agent-stage.ts';
import { findNpmProgram } from '../support/npm-program.ts';
import { openCodeConfiguration } from '../support/opencode.ts';
import { type ScriptedModel, startScriptedModel } from '../support/scripted-model.ts';
import { openFolder } from '../worker/workbench.ts';
import { GIT_HOME, startGitServer } from '../worker/workspace/git-server.ts';
import { createRepository, git, writeFiles } from '../worker/workspace/repositories.ts';

/** How long an agent may take to be installed, to start and to work, in milliseconds. */
const AGENT_MS = 300_000;

const folder = openFolder();

const AGENTS = [
  {
    agent: 'OpenCode',
    package: { name: 'opencode-ai', version: '1.18.33', program: 'opencode', hasScripts: true },
    args: 'acp',
    configure: (model: ScriptedModel) => ['--env', `OPENCODE_CONFIG_CONTENT=${openCodeConfiguration(model)}`],
    cost: /^cost +0 USD, as the agent reports it$/m,
  },
  {
    agent: 'Gemini CLI',
    package: { name: '@google/gemini-cli', version: '0.61.0', program: 'gemini' },
    args: '--acp --model gemini-2.5-pro',
    configure: ({ origin }: ScriptedModel) => [
      ...['--env', `GOOGLE_GEMINI_BASE_URL=${origin}`, '--pass-env', 'GEMINI_API_KEY'],
    ],
    cost: /^cost +not reported by the agent$/m,
  },
];

const FIXED =
  'export const total = (items) => items.reduce((sum, item) => sum + item.price * item.quantity, 0);';

const SHOP = {
  'package.json': '{"type":"module"}\n',
  'cart.js': 'export const total = (items) => items.reduce((sum, item) => sum + item.price, 0);\n',
  'cart.test.js': `import assert from 'node:assert';
import test from 'node:test';
import { total } from './cart.js';

test('a quantity counts', () => assert.equal(total([{ price: 3, quantity: 2 }]), 6));
`,
};

test.each(AGENTS)(
  '$agent mends a failing test: what fails the check goes back to it, and what passes is pushed',
  {
    timeout: AGENT_MS,
  },
  async ({ agent, package: program, args, configure, cost }) => {
    const path = await findNpmProgram(program);
    const model = await startScriptedModel([
      'echo "export const total = () => 7;" > cart.js',
      `echo '${FIXED}' > cart.js`,
    ]);
    const repository = createRepository(folder(agent), SHOP);
    const server = await startGitServer(folder(agent), 'ada:correct-horse');
    writeFiles(folder(`${agent}-home`), GIT_HOME);
    const stage = await openAgentStage({
      ...{ HOME: folder(`${agent}-home`), WORKSPACE_DIR: folder(`${agent}-workspaces`) },
      ...{ GIT_PASSWORD: 'correct-horse', GEMINI_API_KEY: 'the key of a model' },
    });
    const key = await stage.create(
      ...(['fix', '--agent', `'${path}' ${args}`, '--repo', `${server.origin}/bare.git`] as const),
      ...['--prompt', 'A test fails. Mend the code.', '--check', 'node --test', '--protect', 'cart.test.js'],
      ...['--push', 'orc/{runId}', '--git-env', 'GIT_PASSWORD', ...configure(model)],
    );
    const runId = await stage.trigger('fix', key, { title: 'from a caller' });
    const { shown, logs } = await stage.see(runId);
    expect(shown).toMatch(/^outcome +The check passed at attempt 2\.$/m);
    expect(shown).toMatch(cost);
    expect(logs).toContain('permission given, execute: echo "export const total = () => 7;" > cart.js');
    expect(logs).toContain('check 1 failed, exit code 1\n');
    expect(logs).toContain('check 2 passed, exit code 0\n');
    expect(git(repository.bare, 'show', `orc/${runId}:cart.js`)).toBe(FIXED);
    // The model has both: the payload, and what the check said.
    const wasAsked = (text: string) => model.asked.some((said) => said.includes(text));
    expect([wasAsked('from a caller'), wasAsked('a quantity counts')]).toEqual([true, true]);
  },
);
