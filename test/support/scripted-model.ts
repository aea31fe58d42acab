import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';
import { atEnd } from './at-end.ts';

export interface ScriptedModel {
  /** Where it listens: `/v1` is the interface of OpenAI's chat completions, `/v1beta` that of Gemini. */
  origin: string;
  /** What it was asked, as JSON. */
  asked: string[];
}

/** How a request of one maker's interface is read, and how it is answered. */
interface Dialect {
  said: unknown;
  /** Whether its user says something, in a session with tools. */
  isTold: boolean;
  /** Server-sent events in which the model has a command run or, without one, says that it is done. */
  answer(command: string | undefined, id: string): object[];
}

/**
 * A model on loopback that plays a script: at each thing it is told, it has one shell command run with the agent's tool for that,
 * then says that it is done. It listens until the test has ended.
 */
export async function startScriptedModel(commands: readonly string[]): Promise<ScriptedModel> {
  const asked: string[] = [];
  const left = [...commands];
  const server = createServer(async (request, response) => {
    const body = await json(request);
    const { said, isTold, answer } = request.url?.includes('/v1beta/')
      ? readGeminiRequest(body as GeminiRequest)
      : readChatRequest(body as ChatRequest);
    asked.push(JSON.stringify(said));
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    const command = isTold ? left.shift() : undefined;
    for (const event of answer(command, `call_${asked.length}`)) {
      response.write(`data: ${JSON.stringify(event)}\n\n`);
    }
    response.end();
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  atEnd(() => {
    server.close();
    server.closeAllConnections();
  });
  return { origin: `http://127.0.0.1:${port}`, asked };
}

interface ChatRequest {
  messages: { role: string }[];
  tools?: unknown[];
}

/** OpenAI's chat completions, as streamed to OpenCode. */
function readChatRequest({ messages, tools = [] }: ChatRequest): Dialect {
  const chunk = (delta: object, reason: string | null = null) => ({
    ...{ id: 'c1', object: 'chat.completion.chunk', created: 1, model: 'stub' },
    choices: [{ index: 0, delta, finish_reason: reason }],
    ...(reason && { usage: { prompt_tokens: 100, completion_tokens: 10, total_tokens: 110 } }),
  });
  return {
    said: messages,
    // Without tools, the agent asks for a title of its session.
    isTold: messages.at(-1)?.role === 'user' && tools.length > 0,
    answer: (command, id) => {
      if (command === undefined) return [chunk({ role: 'assistant', content: 'Done.' }), chunk({}, 'stop')];
      const call = { name: 'bash', arguments: JSON.stringify({ command, description: 'Work' }) };
      const calls = [{ index: 0, id, type: 'function', function: call }];
      return [chunk({ role: 'assistant', tool_calls: calls }), chunk({}, 'tool_calls')];
    },
  };
}

interface GeminiRequest {
  contents: { role: string; parts: { functionResponse?: unknown }[] }[];
  tools?: unknown[];
}

/** Gemini's `streamGenerateContent`, as streamed to Gemini CLI. */
function readGeminiRequest({ contents, tools = [] }: GeminiRequest): Dialect {
  const last = contents.at(-1);
  const isResult = last?.parts.some(({ functionResponse }) => functionResponse);
  return {
    said: contents,
    isTold: last?.role === 'user' && !isResult && tools.length > 0,
    answer: (command) => {
      const call = { name: 'run_shell_command', args: { command, description: 'Work' } };
      const part = command === undefined ? { text: 'Done.' } : { functionCall: call };
      return [
        {
          candidates: [{ index: 0, content: { role: 'model', parts: [part] }, finishReason: 'STOP' }],
          usageMetadata: { promptTokenCount: 100, candidatesTokenCount: 10, totalTokenCount: 110 },
        },
      ];
    },
  };
}
