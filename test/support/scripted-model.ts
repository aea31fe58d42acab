import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';

interface ChatRequest {
  messages: { role: string; content?: unknown }[];
  tools?: unknown[];
}

export interface ScriptedModel {
  /** Base URL of its interface, that of OpenAI's chat completions. */
  url: string;
  /** What it was asked, as JSON. */
  asked: string[];
  close(): void;
}

/**
 * A model on loopback that plays a script: at each thing it is told, it has one shell command run with the tool `bash`, then says
 * that it is done.
 */
export async function startScriptedModel(commands: readonly string[]): Promise<ScriptedModel> {
  const asked: string[] = [];
  const left = [...commands];
  const server = createServer(async (request, response) => {
    const body = (await json(request)) as ChatRequest;
    asked.push(JSON.stringify(body.messages));
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    const send = (delta: object, reason: string | null = null) => {
      const choices = [{ index: 0, delta, finish_reason: reason }];
      const usage = { prompt_tokens: 100, completion_tokens: 10, total_tokens: 110 };
      const chunk = { id: 'c1', object: 'chat.completion.chunk', created: 1, model: 'stub', choices };
      response.write(`data: ${JSON.stringify({ ...chunk, ...(reason !== null && { usage }) })}\n\n`);
    };
    // Without tools, the agent asks for a title of its session.
    const isTold = body.messages.at(-1)?.role === 'user' && (body.tools ?? []).length > 0;
    const command = isTold ? left.shift() : undefined;
    if (command === undefined) {
      send({ role: 'assistant', content: 'Done.' });
      send({}, 'stop');
    } else {
      const call = { name: 'bash', arguments: JSON.stringify({ command, description: 'Work' }) };
      const id = `call_${asked.length}`;
      send({ role: 'assistant', tool_calls: [{ index: 0, id, type: 'function', function: call }] });
      send({}, 'tool_calls');
    }
    response.end('data: [DONE]\n\n');
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}/v1`,
    asked,
    close: () => {
      server.close();
      server.closeAllConnections();
    },
  };
}
