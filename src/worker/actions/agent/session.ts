import type { Readable, Writable } from 'node:stream';
import type {
  ContentBlock,
  RequestPermissionRequest,
  RequestPermissionResponse,
} from '@agentclientprotocol/sdk';
import { withDeadline } from '../../../core/deadline.ts';
import { quoted } from '../../../core/quoted.ts';
import { AgentFailure } from './agent-failure.ts';
import { type ProtocolObserver, protocolStream } from './protocol-stream.ts';

/** The error of the Agent Client Protocol with which an agent asks for a login. */
const AUTH_REQUIRED = -32000;

/** Of a malformed answer that a message shows, in characters. */
const SHOWN_ANSWER = 100;

export interface SessionOptions extends ProtocolObserver {
  /** Absolute path of the workspace. */
  cwd: string;
  /** What orc is called to the agent. */
  version: string;
  /** How long the agent may take to answer at its start, in milliseconds. */
  startMs: number;
  onPermission(request: RequestPermissionRequest): RequestPermissionResponse;
}

export interface AgentSession {
  /** Whether prompts may hold the content of files. */
  takesResources: boolean;
  /** @returns why the agent stopped, in the protocol's words */
  prompt(content: ContentBlock[]): Promise<string>;
  /** Asks the agent to stop its turn; resolves when it has. */
  cancel(): Promise<void>;
  close(): void;
}

/**
 * Opens a session with an agent: version 1 of the Agent Client Protocol over its standard input and output.
 *
 * @throws AgentFailure
 */
export async function openSession(
  { stdin, stdout }: { stdin: Writable; stdout: Readable },
  options: SessionOptions,
): Promise<AgentSession> {
  // Only a worker with agents loads the library.
  const { client, methods, PROTOCOL_VERSION } = await import('@agentclientprotocol/sdk');
  const { cwd, version, startMs, onPermission } = options;
  let failure: unknown;
  const observer: ProtocolObserver = { onUpdate: options.onUpdate, onGarbage: options.onGarbage };
  const stream = protocolStream(stdin, stdout, observer);
  const connection = client({ name: 'orc' })
    .onRequest(methods.client.session.requestPermission, ({ params }) => onPermission(params))
    .connect(stream);
  connection.signal.addEventListener('abort', () => {
    failure = connection.signal.reason;
  });
  const { agent } = connection;

  /** @param isAnswer whether it has what is read of it: the library lets everything pass */
  const ask = async <T>(what: string, asking: Promise<T>, isAnswer: (answer: T) => boolean): Promise<T> => {
    try {
      const answer = await asking;
      if (answer && isAnswer(answer)) return answer;
      const shown = quoted(JSON.stringify(answer) ?? 'empty', SHOWN_ANSWER, false);
      throw new AgentFailure(`The agent broke the protocol at '${what}': its answer was ${shown}.`);
    } catch (error) {
      throw explained(what, failure instanceof AgentFailure ? failure : error);
    }
  };
  const askSoon = <T>(what: string, asking: Promise<T>, isAnswer: (answer: T) => boolean) => {
    const silence = new AgentFailure(
      `The agent did not answer '${what}' within ${startMs} ms; check that its command line makes it speak the Agent Client Protocol.`,
    );
    return ask(
      what,
      withDeadline(asking, startMs).catch((error: Error) => {
        throw error.name === 'DeadlineError' ? silence : error;
      }),
      isAnswer,
    );
  };

  const greeting = await askSoon(
    'initialize',
    agent.request(methods.agent.initialize, {
      protocolVersion: PROTOCOL_VERSION,
      clientInfo: { name: 'orc', version },
      clientCapabilities: { fs: { readTextFile: false, writeTextFile: false }, terminal: false },
    }),
    ({ protocolVersion }) => typeof protocolVersion === 'number',
  );
  if (greeting.protocolVersion !== PROTOCOL_VERSION) {
    throw new AgentFailure(
      `The agent speaks version ${greeting.protocolVersion} of the Agent Client Protocol, and orc version ${PROTOCOL_VERSION}.`,
    );
  }
  const { sessionId } = await askSoon(
    'session/new',
    agent.request(methods.agent.session.new, { cwd, mcpServers: [] }),
    (answer) => typeof answer.sessionId === 'string',
  );
  let turn: Promise<unknown> = Promise.resolve();
  return {
    takesResources: greeting.agentCapabilities?.promptCapabilities?.embeddedContext === true,
    prompt: async (prompt) => {
      const asking = ask(
        'session/prompt',
        agent.request(methods.agent.session.prompt, { sessionId, prompt }),
        ({ stopReason }) => typeof stopReason === 'string',
      );
      turn = asking.catch(() => undefined);
      return (await asking).stopReason;
    },
    cancel: async () => {
      await agent.notify(methods.agent.session.cancel, { sessionId }).catch(() => undefined);
      await turn;
    },
    close: () => connection.close(),
  };
}

function explained(what: string, error: unknown): AgentFailure {
  if (error instanceof AgentFailure) return error;
  const { code, message } = error as { code?: unknown; message?: unknown };
  if (code === AUTH_REQUIRED) {
    return new AgentFailure(
      'The agent asks for a login: give it the key of its model with --pass-env, or the folder with its login with --pass-env HOME.',
    );
  }
  const text = typeof message === 'string' ? message.replace(/\.$/, '') : String(error);
  return typeof code === 'number'
    ? new AgentFailure(`The agent answered '${what}' with the error ${code}: ${text}.`)
    : new AgentFailure(`The agent broke the protocol at '${what}': ${text}.`, true);
}
