import type { Readable, Writable } from 'node:stream';
import type { AnyMessage, Stream } from '@agentclientprotocol/sdk';
import { AgentFailure } from './agent-failure.ts';

/** Largest message of an agent, in bytes. */
const MAX_MESSAGE_BYTES = 16 * 1024 * 1024;

/** So many lines that are no messages are borne: a greeting, a warning of a library. */
const MAX_GARBAGE_LINES = 100;

export interface ProtocolObserver {
  /** The agent tells about its work; in the order of all its messages. */
  onUpdate(update: Readonly<Record<string, unknown>>): void;
  /** A line that is no message. */
  onGarbage(line: string): void;
}

type Message = Record<string, unknown>;

/**
 * The messages over an agent's standard input and output: JSON-RPC, one message a line (Agent Client Protocol, "Transports").
 * What the agent tells about its work goes to the observer, in order; requests and the answers to ours go to the connection.
 * What is neither is not answered, and never reaches the library, which would print it.
 */
export function protocolStream(stdin: Writable, stdout: Readable, observer: ProtocolObserver): Stream {
  const asked = new Set<unknown>();
  let garbageLines = 0;
  const split = lineSplitter((line, controller: ReadableStreamDefaultController<AnyMessage>) => {
    const message = parse(line);
    if (message === undefined) {
      if (line.trim() === '') return;
      garbageLines += 1;
      if (garbageLines > MAX_GARBAGE_LINES) {
        throw new AgentFailure(
          `The agent printed more than ${MAX_GARBAGE_LINES} lines that are not the Agent Client Protocol; check that its command line makes it speak it.`,
        );
      }
      return observer.onGarbage(line);
    }
    const { method, params, id } = message;
    if (method === 'session/update') return observer.onUpdate(updateIn(params));
    const isRequest = typeof method === 'string' && id !== undefined && id !== null;
    const isAnswer = method === undefined && asked.delete(id);
    // The library checks what it makes use of.
    if (isRequest || isAnswer) controller.enqueue(message as AnyMessage);
  });
  const chunks: AsyncIterator<Uint8Array> = stdout[Symbol.asyncIterator]();
  const readable = new ReadableStream<AnyMessage>({
    pull: async (controller) => {
      while ((controller.desiredSize ?? 0) > 0) {
        const { value, done } = await chunks.next();
        if (done) return controller.close();
        split(value, controller);
      }
    },
    cancel: () => void stdout.destroy(),
  });
  const writable = new WritableStream<AnyMessage>({
    write: async (message) => {
      if ('id' in message && 'method' in message) asked.add(message.id);
      await new Promise<void>((resolve) => stdin.write(`${JSON.stringify(message)}\n`, () => resolve()));
    },
  });
  return { readable, writable };
}

/** Cuts bytes into lines, each of at most {@link MAX_MESSAGE_BYTES}. */
function lineSplitter<C>(onLine: (line: string, controller: C) => void) {
  let held: Uint8Array[] = [];
  let heldBytes = 0;
  return (chunk: Uint8Array, controller: C) => {
    let rest = chunk;
    for (let end = rest.indexOf(10); end !== -1; end = rest.indexOf(10)) {
      const line = Buffer.concat([...held, rest.subarray(0, end)]).toString();
      held = [];
      heldBytes = 0;
      rest = rest.subarray(end + 1);
      onLine(line, controller);
    }
    held.push(rest);
    heldBytes += rest.length;
    if (heldBytes > MAX_MESSAGE_BYTES) {
      throw new AgentFailure(`The agent sent a message of more than ${MAX_MESSAGE_BYTES} bytes.`);
    }
  };
}

/** @returns undefined for what is no message of JSON-RPC 2.0 */
function parse(line: string): Message | undefined {
  try {
    const message: unknown = JSON.parse(line);
    return isRecord(message) && message['jsonrpc'] === '2.0' ? message : undefined;
  } catch {
    return undefined;
  }
}

function updateIn(params: unknown): Message {
  const update = isRecord(params) ? params['update'] : undefined;
  return isRecord(update) ? update : {};
}

function isRecord(value: unknown): value is Message {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
