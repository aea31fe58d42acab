// The smallest agent: it speaks the Agent Client Protocol, and writes the file that the payload names, such as
// {"file": "greeting.txt", "text": "Hello"}. An agent of yours asks a model where `work` is.
import { readFile, writeFile } from 'node:fs/promises';
import { basename } from 'node:path';
import { createInterface } from 'node:readline';

const send = (message) => console.log(JSON.stringify({ jsonrpc: '2.0', ...message }));

/** @returns what it says; `prompt` is the task, and later what the check said */
async function work(prompt) {
  const { file, text } = JSON.parse(await readFile(process.env.ORC_PAYLOAD_FILE, 'utf8'));
  // It starts in the workspace, and must not write anywhere else.
  await writeFile(basename(file), text);
  return `I was told "${prompt[0].text.slice(0, 40)}…" and wrote ${basename(file)}.`;
}

const METHODS = {
  initialize: () => ({ protocolVersion: 1, agentCapabilities: {} }),
  'session/new': () => ({ sessionId: 'session-1' }),
  'session/prompt': async ({ sessionId, prompt }) => {
    const content = { type: 'text', text: await work(prompt) };
    const update = { sessionUpdate: 'agent_message_chunk', content };
    send({ method: 'session/update', params: { sessionId, update } });
    return { stopReason: 'end_turn' };
  },
};

// Each line is a JSON-RPC message. One without an id is a notification, and needs no answer.
for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) continue;
  try {
    if (!(method in METHODS)) throw new Error(`there is no method ${method}`);
    send({ id, result: await METHODS[method](params) });
  } catch ({ message }) {
    send({ id, error: { code: -32603, message } });
  }
}
