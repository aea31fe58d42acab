import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { runOrc } from '../support/orc.ts';
import { runOrcProcess } from '../support/orc-process.ts';
import { openFolder } from '../worker/workbench.ts';

/** A folder in which, and above which, no `orc local` runs. */
const cwd = openFolder()('.');

/** Commands that come and go, and commands that stay; each kind finds its Redis in its own way. */
const SHORT_COMMANDS = [
  ['automations', 'create', 'x', '--', 'true'],
  ['automations', 'list'],
  ['runs', 'logs', 'x'],
];
const LONG_COMMANDS = [['api'], ['worker'], ['console']];

test('without REDIS_URL and without orc local, a command fails with one sentence that says what to do', async () => {
  const results = await Promise.all([
    ...LONG_COMMANDS.map((args) => runOrcProcess(args, { cwd })),
    ...SHORT_COMMANDS.map((args) => runOrc(args, { cwd })),
  ]);
  for (const result of results) {
    expect(result).toEqual({
      code: 1,
      stdout: '',
      stderr: 'orc: There is no Redis. Start `orc local` in this folder, or set REDIS_URL.\n',
    });
  }
});

test('a Redis that is not there is one clear error without its password', async () => {
  const port = await unusedPort();
  const env = { REDIS_URL: `redis://user:s3cret@127.0.0.1:${port}/0` };
  const results = await Promise.all([
    // A connection that is being tried again would keep the process alive.
    runOrcProcess(['automations', 'list'], { cwd, env }),
    ...SHORT_COMMANDS.map((args) => runOrc(args, { cwd, env })),
  ]);
  for (const { code, stdout, stderr } of results) {
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toMatch(/^orc: Redis at redis:\/\/\*\*\*@127\.0\.0\.1:\d+\/0 cannot be used: .*\n$/);
    expect(stderr).toContain(`ECONNREFUSED 127.0.0.1:${port}`);
    expect(stderr).toContain('REDIS_URL');
    expect(stderr).not.toContain('s3cret');
  }
});

test('Sentinels and a cluster that are not there are one clear error each without a password', async () => {
  const hosts = `127.0.0.1:${await unusedPort()},127.0.0.1:${await unusedPort()}`;
  const urls = [
    `redis+sentinel://user:s3cret@${hosts}/mymaster?sentinel_password=s3cret`,
    `redis+cluster://user:s3cret@${hosts}`,
  ];
  const results = await Promise.all(
    urls.map((url) => runOrcProcess(['runs', 'list'], { cwd, env: { REDIS_URL: url } })),
  );
  for (const [index, { code, stdout, stderr }] of results.entries()) {
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toMatch(
      /^orc: Redis at redis\+\S+ cannot be used: no (Sentinel|node of the cluster) can be used \(.+\)\. Check .*\n$/,
    );
    expect(stderr).toContain(['that the Sentinels and the master', 'that the nodes run'][index]);
    expect(stderr).not.toContain('s3cret');
  }
});

test('a Redis that takes connections and never answers is one clear error, too', async () => {
  const { port } = await listen(() => undefined);
  const { code, stderr } = await runOrcProcess(['automations', 'list'], {
    env: { REDIS_URL: `redis://:s3cret@127.0.0.1:${port}` },
  });
  expect(code).toBe(1);
  expect(stderr).toMatch(/^orc: Redis at \S+ cannot be used: .*\n$/);
  expect(stderr).not.toContain('s3cret');
});

test('something else than Redis is one clear error, too', async () => {
  const { port } = await listen((socket) => socket.end('HTTP/1.1 400 Bad Request\r\n\r\n'));
  const { code, stderr } = await runOrc(['automations', 'list'], {
    env: { REDIS_URL: `redis://127.0.0.1:${port}` },
  });
  expect(code).toBe(1);
  expect(stderr).toMatch(/^orc: Redis at \S+ cannot be used: .*\n$/);
});

test('a wrong environment is one message with every problem and no value, whatever the command', async () => {
  const env = {
    REDIS_URL: 'http://:s3cret@redis',
    PORT: 's3cret-port',
    LOG_LEVEL: 's3cret-level',
    REDIS_PREFIX: 's3cret prefix',
    RUN_TIMEOUT_MS: '-1',
    TRUST_PROXY: 's3cret-proxy',
  };
  const results = await Promise.all([
    ...[['local'], ...LONG_COMMANDS].map((args) => runOrcProcess(args, { cwd, env })),
    ...SHORT_COMMANDS.map((args) => runOrc(args, { cwd, env })),
  ]);
  for (const { code, stdout, stderr } of results) {
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toMatch(/^orc: The environment has 6 problems:\n( {2}[A-Z_]+ .*\n){6}$/);
    for (const name of Object.keys(env)) expect(stderr).toMatch(new RegExp(`^  ${name} `, 'm'));
    expect(stderr).not.toContain('s3cret');
  }
});

test('a wrongly typed command is told before a wrong environment', async () => {
  const { code, stderr } = await runOrc(['automations', 'create', 'x'], { env: { PORT: 'wrong' } });
  expect(code).toBe(2);
  expect(stderr).not.toContain('PORT');
});

async function listen(onConnection: (socket: Socket) => void): Promise<{ port: number; server: Server }> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
    onConnection(socket);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return { port: (server.address() as AddressInfo).port, server };
}

async function unusedPort(): Promise<number> {
  const { port, server } = await listen(() => undefined);
  server.close();
  await once(server, 'close');
  return port;
}
