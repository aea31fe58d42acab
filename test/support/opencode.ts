import type { ScriptedModel } from './scripted-model.ts';

/** What tells OpenCode to use a model on this machine, and to ask before it runs a command. */
export function openCodeConfiguration({ origin }: ScriptedModel): string {
  const limit = { context: 100_000, output: 4096 };
  return JSON.stringify({
    ...{ model: 'stub/stub', small_model: 'stub/stub', autoupdate: false, share: 'disabled' },
    permission: { bash: 'ask' },
    provider: {
      stub: {
        npm: '@ai-sdk/openai-compatible',
        options: { baseURL: `${origin}/v1`, apiKey: 'x' },
        models: { stub: { name: 'Stub', tool_call: true, limit } },
      },
    },
  });
}
