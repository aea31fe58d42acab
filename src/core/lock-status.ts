import { once } from 'node:events';
import { connect, createServer } from 'node:net';

const ANSWER_TIMEOUT_MS = 1000;

/** The status of a process that holds a lock. */
export interface HolderStatus {
  pid: number;
  /** Of an `orc local`, once everything runs. */
  apiUrl?: string | undefined;
  consoleUrl?: string | undefined;
}

/** `silent`: the process is suspended or about to end. `nobody`: it has ended. */
export type Answer = HolderStatus | 'silent' | 'nobody';

/**
 * Answers on a socket until this process ends, however it ends.
 *
 * @returns a function that stops it
 */
export async function answerStatus(path: string, status: () => HolderStatus): Promise<() => Promise<void>> {
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.end(`${JSON.stringify(status())}\n`, () => socket.destroy());
  });
  server.listen(path);
  await once(server, 'listening');
  return async () => {
    if (!server.listening) return;
    server.close();
    await once(server, 'close');
  };
}

/** Asks for the status on a socket. */
export function askStatus(path: string): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const socket = connect(path);
    let text = '';
    socket.setEncoding('utf8');
    socket.setTimeout(ANSWER_TIMEOUT_MS, () => socket.destroy());
    socket.on('data', (data: string) => {
      text += data;
    });
    socket.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'ECONNREFUSED' || error.code === 'ENOENT') resolve('nobody');
      else if (error.code !== 'ECONNRESET') reject(error);
    });
    socket.on('close', () => resolve(parseStatus(text)));
  });
}

function parseStatus(text: string): HolderStatus | 'silent' {
  try {
    return JSON.parse(text) as HolderStatus;
  } catch {
    return 'silent';
  }
}
