import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { atEnd } from '../../support/at-end.ts';

export interface GitServer {
  origin: string;
  /** Requests so far, as "METHOD path". */
  requests: string[];
}

/** The home of a user whose git logs in with `ada:$GIT_PASSWORD`. */
export const GIT_HOME = {
  '.gitconfig': '[credential]\n\thelper = "!f() { echo username=ada; echo password=$GIT_PASSWORD; }; f"\n',
};

/**
 * Serves the repositories in a folder over HTTP on the loopback interface with `git http-backend`, to whoever has the login,
 * until the test has ended.
 *
 * @param login as in `user:password`
 */
export async function startGitServer(folder: string, login: string): Promise<GitServer> {
  const requests: string[] = [];
  const expected = `Basic ${Buffer.from(login).toString('base64')}`;
  const server = createServer((request, response) => {
    requests.push(`${request.method} ${request.url}`);
    if (request.headers.authorization === expected) return handle(folder, request, response);
    response.writeHead(401, { 'www-authenticate': 'Basic realm="git"' }).end();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  atEnd(() => {
    server.closeAllConnections();
    server.close();
  });
  return { origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, requests };
}

/** As a web server calls a CGI program (RFC 3875). */
function handle(folder: string, request: IncomingMessage, response: ServerResponse): void {
  const { pathname, search } = new URL(request.url ?? '', 'http://localhost');
  const backend = spawn('git', ['http-backend'], {
    stdio: ['pipe', 'pipe', 'inherit'],
    env: {
      PATH: process.env['PATH'],
      GIT_PROJECT_ROOT: folder,
      GIT_HTTP_EXPORT_ALL: '1',
      REMOTE_USER: 'ada',
      REMOTE_ADDR: '127.0.0.1',
      REQUEST_METHOD: request.method,
      PATH_INFO: pathname,
      QUERY_STRING: search.slice(1),
      CONTENT_TYPE: request.headers['content-type'],
      CONTENT_LENGTH: request.headers['content-length'],
      HTTP_CONTENT_ENCODING: request.headers['content-encoding'],
      GIT_PROTOCOL: String(request.headers['git-protocol'] ?? ''),
    },
  });
  request.pipe(backend.stdin);
  backend.stdin.on('error', () => undefined);
  let head = Buffer.alloc(0);
  backend.stdout.on('data', (data: Buffer) => {
    if (response.headersSent) return void response.write(data);
    head = Buffer.concat([head, data]);
    const end = head.indexOf('\r\n\r\n');
    if (end === -1) return;
    const headers = head
      .subarray(0, end)
      .toString()
      .split('\r\n')
      .map((line) => line.split(': ') as [string, string]);
    const status = headers.find(([name]) => name === 'Status')?.[1] ?? '200';
    response.writeHead(Number.parseInt(status, 10), Object.fromEntries(headers));
    response.write(head.subarray(end + 4));
  });
  backend.on('close', () => response.end());
}
