// An agent that speaks the Agent Client Protocol and does what the variable AGENT_SCRIPT says: a `Script` as JSON. A process of
// its own; see `agents.ts`.

import { execSync, spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { Readable, Writable } from 'node:stream';
import * as acp from '@agentclientprotocol/sdk';

/** What the agent does in a turn, one after the other: a name of {@link STEPS} and its argument. */
export type Step = Partial<{ [Name in keyof typeof STEPS]: Parameters<(typeof STEPS)[Name]>[0] }>;

export interface Script {
  /** What it does instead of answering at its start. */
  start?: 'silent' | 'login' | 'garbage' | 'death' | 'old' | 'stubborn';
  /** Whether it takes resources in prompts; otherwise links. */
  embedded?: boolean;
  turns?: Step[][];
}

const script = JSON.parse(process.env['AGENT_SCRIPT'] ?? '{}') as Script;
let turn = 0;
let cancelled: () => void = () => undefined;
const cancelling = new Promise<void>((resolve) => {
  cancelled = resolve;
});

if (script.start === 'garbage') {
  process.stdout.write('Welcome to my shell!\n'.repeat(200));
} else if (script.start === 'death') {
  console.error('Error: no model is configured');
  process.exit(3);
}

const out = Writable.toWeb(process.stdout) as WritableStream<Uint8Array>;
const stream = acp.ndJsonStream(out, Readable.toWeb(process.stdin) as ReadableStream<Uint8Array>);
if (script.start === 'stubborn') process.on('SIGTERM', () => undefined);

interface Turn {
  client: acp.AgentContext;
  sessionId: string;
  prompt: acp.ContentBlock[];
  tell(update: acp.SessionUpdate): Promise<void>;
  say(text: string): Promise<void>;
}

/** @returns why the turn is over, if it is */
async function take(
  step: Step,
  { sessionId, prompt }: acp.PromptRequest,
  client: acp.AgentContext,
): Promise<acp.StopReason | undefined> {
  const tell = (update: acp.SessionUpdate) => client.notify('session/update', { sessionId, update });
  const say = (text: string) =>
    tell({ sessionUpdate: 'agent_message_chunk', content: { type: 'text', text } });
  const [[name, argument] = []] = Object.entries(step);
  const run = STEPS[name as keyof typeof STEPS] as (argument: unknown, turn: Turn) => unknown;
  return (await run(argument, { client, sessionId, prompt, tell, say })) as acp.StopReason | undefined;
}

const STEPS = {
  say: async (text: string, { say }: Turn) => {
    for (const part of text.match(/.{1,7}/gsu) ?? []) await say(part);
  },
  think: (text: string, { tell }: Turn) =>
    tell({ sessionUpdate: 'agent_thought_chunk', content: { type: 'text', text } }),
  /** Repeats what it was told. */
  sayPrompt: (_: true, { say, prompt }: Turn) => say(JSON.stringify(prompt)),
  sayVariable: (name: string, { say }: Turn) => say(`${name}=${process.env[name]}`),
  write: ({ file, text }: { file: string; text: string }) => writeFileSync(file, text),
  stderr: (text: string) => console.error(text),
  /** A line on standard output. */
  print: (line: string) => void process.stdout.write(`${line}\n`),
  /** A notification with these parameters. */
  notify: (params: unknown, { client }: Turn) => client.notify('session/update', params),
  plan: (contents: string[], { tell }: Turn) => {
    const entries = contents.map((content) => ({ content, priority: 'high', status: 'pending' }) as const);
    return tell({ sessionUpdate: 'plan', entries });
  },
  tool: async (
    { title, kind, output }: { title: string; kind: acp.ToolKind; output: string },
    { tell }: Turn,
  ) => {
    await tell({ sessionUpdate: 'tool_call', toolCallId: title, title, kind, status: 'in_progress' });
    const content: acp.ToolCallContent[] = [{ type: 'content', content: { type: 'text', text: output } }];
    await tell({ sessionUpdate: 'tool_call_update', toolCallId: title, status: 'completed', content });
  },
  /** A tool call for which it asks for permission; with it, it runs a shell command. */
  ask: async (
    { title, kind, run }: { title: string; kind: acp.ToolKind; run?: string },
    { client, sessionId, say, tell }: Turn,
  ) => {
    const toolCall = { toolCallId: title, title, kind };
    await tell({ sessionUpdate: 'tool_call', ...toolCall, status: 'pending' });
    const options: acp.PermissionOption[] = [
      { optionId: 'always', name: 'Always', kind: 'allow_always' },
      { optionId: 'once', name: 'Once', kind: 'allow_once' },
      { optionId: 'no', name: 'No', kind: 'reject_once' },
    ];
    const asked: acp.RequestPermissionRequest = { sessionId, toolCall, options };
    const { outcome } = await client.request<'session/request_permission'>(
      'session/request_permission',
      asked,
    );
    const answer = outcome.outcome === 'selected' ? outcome.optionId : outcome.outcome;
    await say(`answer: ${answer}\n`);
    const isAllowed = answer === 'once';
    if (isAllowed && run !== undefined) execSync(run);
    const status = isAllowed ? 'completed' : 'failed';
    await tell({ sessionUpdate: 'tool_call_update', toolCallId: title, status });
  },
  cost: (cost: acp.Cost, { tell }: Turn) =>
    tell({ sessionUpdate: 'usage_update', used: 150, size: 100_000, cost }),
  /** So many tool calls and messages, each of some kilobytes. */
  flood: async (count: number, { tell, say }: Turn) => {
    for (let index = 0; index < count; index += 1) {
      const title = `call ${index} ${'x'.repeat(200)}`;
      await tell({ sessionUpdate: 'tool_call', toolCallId: `${index}`, title });
      await say('y'.repeat(2000));
    }
  },
  /** Starts a process that outlives the agent, and says its id. */
  escape: (_: true, { say }: Turn) => {
    const { pid } = spawn('sleep', ['1000'], { detached: true, stdio: 'ignore' });
    return say(`escaped ${pid}`);
  },
  /** Runs a shell command besides, in a session of its own and without the variables by which processes are found. */
  hide: (run: string) => {
    spawn('sh', ['-c', run], { env: { PATH: process.env['PATH'] }, detached: true, stdio: 'ignore' });
  },
  stop: (reason: acp.StopReason) => reason,
  error: ({ code, message }: { code: number; message: string }) => {
    throw new acp.RequestError(code, message);
  },
  exit: (code: number) => process.exit(code),
  /** Works until it is cancelled, or for ever. */
  hang: async (how: 'until cancelled' | 'for ever'): Promise<acp.StopReason> => {
    const alive = setInterval(() => undefined, 1000);
    await (how === 'until cancelled' ? cancelling : new Promise(() => undefined));
    clearInterval(alive);
    return 'cancelled';
  },
};

acp
  .agent({ name: 'scripted' })
  .onRequest('initialize', async () => {
    if (script.start === 'silent') await new Promise(() => setInterval(() => undefined, 1000));
    return {
      protocolVersion: script.start === 'old' ? 0 : acp.PROTOCOL_VERSION,
      agentCapabilities: { promptCapabilities: { embeddedContext: script.embedded ?? true } },
    };
  })
  .onRequest('session/new', () => {
    if (script.start === 'login') throw new acp.RequestError(-32000, 'Authentication required');
    return { sessionId: 'session-1' };
  })
  .onRequest('session/prompt', async ({ params, client }) => {
    const steps = script.turns?.[turn] ?? [];
    turn += 1;
    for (const step of steps) {
      const stopReason = await take(step, params, client);
      if (stopReason !== undefined) return { stopReason };
    }
    return { stopReason: 'end_turn' };
  })
  .onNotification('session/cancel', () => cancelled())
  .connect(stream);
