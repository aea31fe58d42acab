import { spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import type { ServerResponse } from 'node:http';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { Webhook } from 'standardwebhooks';
import { expect, onTestFinished, test } from 'vitest';
import type { ActionContext } from '../../src/worker/actions/action.ts';
import { openDeliveries } from '../../src/worker/actions/http.ts';
import { receiverAddresses } from '../../src/worker/actions/receiver-addresses.ts';
import { SHUTTING_DOWN } from '../../src/worker/lease.ts';
import { compiled } from '../support/repository.ts';
import { answerStatus, type Received, startReceiver } from './receiver.ts';
import { type AttemptOptions, eventually, HARD_PAYLOAD, openWorkbench, sha256 } from './workbench.ts';

const { attempt } = openWorkbench();

const SECRET = `whsec_${randomBytes(32).toString('base64')}`;

function deliver(url: string, options: AttemptOptions = {}, deny?: 'private') {
  const deliveries = openDeliveries({
    config: { ...(deny && { DELIVERY_DENY: deny }), version: '1.2.3-test' },
  });
  const perform = (context: ActionContext) =>
    deliveries.perform({ type: 'http', url }, { ...context, signingSecrets: [SECRET] });
  return attempt(perform, options);
}

test('the receiver gets the payload byte for byte, as JSON, in one POST', async () => {
  const receiver = await startReceiver(answerStatus(200));
  const { result } = await deliver(`${receiver.url}/hook?a=1&b=%20`, { run: { payload: HARD_PAYLOAD } });
  expect(result).toEqual({
    outcome: {
      status: 'succeeded',
      reason: 'http_status',
      message: 'The receiver answered 200.',
      httpStatus: 200,
    },
    mayRetry: false,
  });
  expect(receiver.requests).toHaveLength(1);
  const [{ method, url, headers, body }] = receiver.requests as [Received];
  expect([method, url, sha256(body)]).toEqual(['POST', '/hook?a=1&b=%20', sha256(HARD_PAYLOAD)]);
  expect(headers['content-type']).toBe('application/json');
  expect(headers['content-length']).toBe(String(HARD_PAYLOAD.length));
  expect(headers['user-agent']).toBe('orc/1.2.3-test');
});

test('a receiver that closes its idle connections loses no delivery', async () => {
  const connections = new Set<unknown>();
  const receiver = await startReceiver((response, { socket }) => {
    connections.add(socket);
    response.writeHead(200).end();
    // It is closed while the next request may be on its way.
    socket.setTimeout(1);
  });
  for (let count = 0; count < 20; count += 1) {
    const { result } = await deliver(receiver.url);
    expect(result).toMatchObject({ outcome: { status: 'succeeded' } });
  }
  expect(connections.size).toBe(20);
});

test('while two secrets are valid, there is a signature of each, and either verifies', async () => {
  const receiver = await startReceiver(answerStatus(200));
  const previous = `whsec_${randomBytes(32).toString('base64')}`;
  const deliveries = openDeliveries({ config: { version: '1.2.3-test' } });
  await attempt((context) =>
    deliveries.perform(
      { type: 'http', url: receiver.url },
      { ...context, signingSecrets: [SECRET, previous] },
    ),
  );
  const [{ headers, body }] = receiver.requests as [Received];
  expect(headers['webhook-signature']).toMatch(/^v1,\S+ v1,\S+$/);
  for (const secret of [SECRET, previous]) {
    expect(new Webhook(secret).verify(body, headers as Record<string, string>)).toEqual({});
  }
});

test('the receiver can verify the signature with the Standard Webhooks library', async () => {
  const receiver = await startReceiver(answerStatus(200));
  const { run } = await deliver(receiver.url, { run: { payload: HARD_PAYLOAD } });
  const [{ headers, body }] = receiver.requests as [Received];
  const signed = headers as Record<string, string>;
  expect(headers['webhook-id']).toBe(run.id);

  const verify = (secret: string, payload: Buffer, changed: Record<string, string> = {}) =>
    new Webhook(secret).verify(payload, { ...signed, ...changed });
  expect(verify(SECRET, body)).toMatchObject({ face: expect.any(String) });
  const tampered = Buffer.from(body);
  tampered[2] = 0x20;
  expect(() => verify(SECRET, tampered)).toThrow();
  expect(() => verify(SECRET, body, { 'webhook-id': 'run_another' })).toThrow();
  expect(() => verify(`whsec_${randomBytes(32).toString('base64')}`, body)).toThrow();
});

test('every attempt carries the id of the run, so that a repetition can be recognised', async () => {
  const receiver = await startReceiver(answerStatus(503));
  await deliver(receiver.url, { run: { id: 'run_same', attempt: 1 } });
  await deliver(receiver.url, { run: { id: 'run_same', attempt: 2 } });
  expect(receiver.requests.map(({ headers }) => headers['webhook-id'])).toEqual(['run_same', 'run_same']);
});

test('the trace of the trigger request goes on, and none is made up', async () => {
  const receiver = await startReceiver(answerStatus(200));
  const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
  await deliver(receiver.url, { run: { traceparent, tracestate: 'rojo=1' } });
  await deliver(receiver.url);
  expect(receiver.requests.map(({ headers }) => [headers['traceparent'], headers['tracestate']])).toEqual([
    [traceparent, 'rojo=1'],
    [undefined, undefined],
  ]);
});

test.each([200, 201, 202, 204])('status %i succeeds', async (status) => {
  const receiver = await startReceiver(answerStatus(status));
  const { result } = await deliver(receiver.url);
  expect(result).toMatchObject({ outcome: { status: 'succeeded', httpStatus: status }, mayRetry: false });
});

test.each([408, 425, 429, 500, 502, 503, 504])('status %i fails and may be retried', async (status) => {
  const receiver = await startReceiver(answerStatus(status));
  const { result } = await deliver(receiver.url);
  expect(result).toMatchObject({
    outcome: { status: 'failed', reason: 'http_status', httpStatus: status },
    mayRetry: true,
  });
});

test.each([400, 401, 403, 404, 409, 410, 422])('status %i fails at once', async (status) => {
  const receiver = await startReceiver(answerStatus(status));
  const { result } = await deliver(receiver.url);
  expect(result).toMatchObject({
    outcome: { status: 'failed', reason: 'http_status', httpStatus: status },
    mayRetry: false,
  });
});

test.each([301, 302, 303, 307, 308])('redirect %i is not followed and fails at once', async (status) => {
  const elsewhere = await startReceiver(answerStatus(200));
  const receiver = await startReceiver((response) =>
    response.writeHead(status, { location: elsewhere.url }).end(),
  );
  const { result, notes } = await deliver(receiver.url);
  expect(result).toMatchObject({
    outcome: {
      status: 'failed',
      httpStatus: status,
      message: expect.stringContaining('redirects are not followed'),
    },
    mayRetry: false,
  });
  expect(notes).toContain(`location: ${elsewhere.url}`);
  expect([receiver.requests.length, elsewhere.requests.length]).toEqual([1, 0]);
});

test('status, headers and the beginning of the answer are in the log', async () => {
  const receiver = await startReceiver((response) => {
    response.writeHead(418, 'Short and Stout', { 'x-kettle': 'whistles', 'content-type': 'text/plain' });
    response.end(`tea${'.'.repeat(100_000)}pot`);
  });
  const { stdout, notes } = await deliver(receiver.url);
  expect(notes).toContain('HTTP 418 Short and Stout\n');
  expect(notes).toContain('x-kettle: whistles\n');
  expect(stdout).toBe(`tea${'.'.repeat(4096 - 3)}`);
});

test('a short answer is in the log as it is', async () => {
  const receiver = await startReceiver((response) => response.end('{"ok":true} 😀\n'));
  expect((await deliver(receiver.url)).stdout).toBe('{"ok":true} 😀\n');
});

test('an answer that goes on for ever does not hold a run that has its status', async () => {
  const receiver = await startReceiver((response) => {
    const pour = () => {
      while (response.writable && response.write('x'.repeat(16_384)));
    };
    response.on('drain', pour);
    pour();
  });
  const { result, stdout } = await deliver(receiver.url);
  expect(result).toMatchObject({ outcome: { status: 'succeeded' } });
  expect(stdout).toHaveLength(4096);
});

test.each([
  ['does not end', (response: ServerResponse) => response.write('begun')],
  ['is cut off', (response: ServerResponse) => response.write('begun', () => response.destroy())],
])('an answer that %s is judged by its status', async (_, answer) => {
  const receiver = await startReceiver(answer);
  const { result, stdout } = await deliver(receiver.url);
  expect(result).toMatchObject({ outcome: { status: 'succeeded', httpStatus: 200 }, mayRetry: false });
  expect(stdout).toBe('begun');
});

test('no answer within the time limit is a timeout, which may be retried', async () => {
  const receiver = await startReceiver(() => undefined);
  const { result, notes } = await deliver(receiver.url, { timeoutMs: 500 });
  const message = 'No answer came within 500 ms.';
  expect(result).toEqual({ outcome: { status: 'timed_out', reason: 'timeout', message }, mayRetry: true });
  expect(notes).toContain(message);
});

test('a receiver that is not there is a network error, which may be retried', async () => {
  const unused = createServer().listen(0, '127.0.0.1');
  await once(unused, 'listening');
  const { port } = unused.address() as AddressInfo;
  unused.close();
  await once(unused, 'close');
  const { result, notes } = await deliver(`http://127.0.0.1:${port}/`);
  expect(result).toEqual({
    outcome: {
      status: 'failed',
      reason: 'network_error',
      message: `The request failed: connect ECONNREFUSED 127.0.0.1:${port}.`,
    },
    mayRetry: true,
  });
  expect(notes).toContain('ECONNREFUSED');
});

/** A receiver that takes a request and then sends these bytes, whatever they are, and perhaps ends the connection. */
async function startRaw(answer: (socket: Socket) => void): Promise<string> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
    socket.once('data', () => answer(socket));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
}

/** Sends the same again and again until nobody takes it, in steps that leave this process time for the one who reads. */
function sendFor(socket: Socket, first: string, more: string): void {
  socket.write(first);
  const pouring = setInterval(() => socket.write(more.repeat(1000)), 10);
  socket.once('close', () => clearInterval(pouring));
}

const UPGRADE = 'HTTP/1.1 101 Switching Protocols\r\nUpgrade: other\r\nConnection: Upgrade\r\n\r\n';

test.each<[what: string, answer: (socket: Socket) => void, message: RegExp]>([
  [
    'an upgrade',
    (socket) => socket.write(UPGRADE),
    /^The receiver answered 101; other protocols than HTTP are not spoken\.$/,
  ],
  ['an upgrade and the end', (socket) => socket.end(UPGRADE), /^The receiver answered 101;/],
  ['a 101 without an upgrade', (socket) => socket.end('HTTP/1.1 101 Why\r\n\r\n'), /answered 101;/],
  [
    'nothing but interim answers',
    (socket) => socket.end('HTTP/1.1 103 Early Hints\r\n\r\n'.repeat(3)),
    /^The request failed: the connection was closed before an answer came\.$/,
  ],
  ['nothing at all', (socket) => socket.end(), /^The request failed: the connection was closed before an/],
  ['half a status line', (socket) => socket.end('HTTP/1.1 20'), /the connection was closed before an answer/],
  ['half a head', (socket) => socket.end('HTTP/1.1 200 OK\r\nx: y'), /the connection was closed before an/],
  [
    'a head without an end',
    (socket) => sendFor(socket, 'HTTP/1.1 200 OK\r\n', 'x: y\r\n'),
    /^The request failed: Parse Error: Header overflow\.$/,
  ],
  [
    'a status line without an end',
    (socket) => sendFor(socket, 'HTTP/1.1 200 ', 'O'),
    /Parse Error: Header overflow/,
  ],
  ['another protocol', (socket) => socket.write('SSH-2.0-server\r\n'), /Parse Error: Expected HTTP\//],
])('a receiver that answers %s is an outcome that says so', async (_, answer, message) => {
  const { result, notes } = await deliver(await startRaw(answer));
  expect(result).toMatchObject({
    outcome: { status: 'failed', message: expect.stringMatching(message) },
  });
  expect(notes).not.toBe('');
});

test.each<[what: string, answer: (socket: Socket) => void]>([
  ['interim answers', (socket) => socket.write(`${'HTTP/1.1 103 Early Hints\r\n\r\n'.repeat(3)}`)],
  ['a head', (socket) => socket.write('HTTP/1.1 200 OK\r\nx: y\r\n')],
])('a receiver that begins with %s and says no more is a timeout', async (_, answer) => {
  const { result } = await deliver(await startRaw(answer), { timeoutMs: 300 });
  expect(result).toMatchObject({
    outcome: { status: 'timed_out', message: 'No answer came within 300 ms.' },
  });
});

test.each<[what: string, more: string]>([
  ['a chunk without an end', '3;name='],
  ['trailers without an end', '0\r\nname: value'],
])('a receiver that answers 200 and then sends %s is judged by its status', async (_, more) => {
  const head = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n';
  const { result } = await deliver(await startRaw((socket) => sendFor(socket, head + more, 'x')));
  expect(result).toMatchObject({ outcome: { status: 'succeeded', httpStatus: 200 } });
});

test('interim answers before the answer change nothing', async () => {
  const interim = 'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n';
  const { result } = await deliver(
    await startRaw((socket) => socket.end(`${interim}HTTP/1.1 204 Done\r\n\r\n`)),
  );
  expect(result).toMatchObject({ outcome: { status: 'succeeded', httpStatus: 204 } });
});

test.each([
  'http://169.254.169.254/latest/meta-data/',
  'https://169.254.0.1/',
  'http://0xa9fea9fe/',
  'http://2852039166/',
  'http://0251.0376.0251.0376./',
  'http://[::ffff:169.254.169.254]/',
  'http://[::169.254.169.254]/',
  'http://[64:ff9b::169.254.169.254]/',
  'http://[fe80::1]/',
  'http://[fd00:ec2::254]/',
  'http://100.100.100.200/',
])('nothing is ever sent to %s, a link-local or metadata address', async (url) => {
  const { result, notes } = await deliver(url);
  const message = expect.stringMatching(
    /^Nothing was sent: \S+ is a link-local or metadata address, to which nothing is delivered\.$/,
  );
  expect(result).toEqual({ outcome: { status: 'failed', reason: 'not_started', message }, mayRetry: false });
  expect(notes).toContain('Nothing was sent');
});

test.each(['127.0.0.1', '[::ffff:127.0.0.1]', '2130706433', 'localhost'])(
  'with DELIVERY_DENY=private, nothing is sent to %s, not even a connection is made',
  async (host) => {
    let connections = 0;
    const server = createServer((socket) => {
      connections += 1;
      socket.destroy();
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    onTestFinished(() => void server.close());
    const { port } = server.address() as AddressInfo;
    const { result } = await deliver(`http://${host}:${port}/`, {}, 'private');
    expect(result).toMatchObject({
      outcome: { reason: 'not_started', message: expect.stringContaining('(DELIVERY_DENY)') },
      mayRetry: false,
    });
    expect(connections).toBe(0);
  },
);

test.each([
  ['0.0.0.0', true],
  ['10.1.2.3', true],
  ['100.64.0.1', true],
  ['172.16.0.1', true],
  ['172.32.0.1', false],
  ['192.168.1.1', true],
  ['::1', true],
  ['fd12::1', true],
  ['::ffff:10.0.0.1', true],
  ['8.8.8.8', false],
  ['::ffff:8.8.8.8', false],
  ['2001:4860:4860::8888', false],
])('whether %s is a private address: %s', (address, isPrivate) => {
  const check = () => receiverAddresses('private').check(address);
  if (isPrivate) expect(check).toThrow('is a private address (DELIVERY_DENY)');
  else expect(check).not.toThrow();
  expect(() => receiverAddresses().check(address)).not.toThrow();
});

test('a name is looked up in whichever way it is asked for', async () => {
  const lookup = promisify(receiverAddresses().lookup);
  expect(await lookup('localhost', { family: 4 })).toBe('127.0.0.1');
  expect(await lookup('localhost', { family: 4, all: true })).toEqual([{ address: '127.0.0.1', family: 4 }]);
});

/** Whether a process can be given an /etc/hosts of its own. */
const hasOwnHosts =
  spawnSync('unshare', ['--mount', '--map-root-user', 'mount', '--bind', '/etc/hosts', '/etc/hosts'])
    .status === 0;

test.runIf(hasOwnHosts)('a name is denied when one of its addresses is, whichever place it has', async () => {
  const hosts = join(mkdtempSync(join(tmpdir(), 'orc-test-hosts-')), 'hosts');
  onTestFinished(() => rmSync(dirname(hosts), { recursive: true }));
  writeFileSync(
    hosts,
    '127.0.0.1 fine.test first.test\n169.254.169.254 first.test last.test\n127.0.0.1 last.test\n',
  );
  const source = `
    import { receiverAddresses } from '${compiled('worker/actions/receiver-addresses.js')}';
    for (const name of ['fine.test', 'first.test', 'last.test']) {
      for (const all of [true, false]) {
        receiverAddresses().lookup(name, { all, family: 4 }, (error) => console.log(name, error?.name ?? 'found'));
      }
    }`;
  const script = 'mount --bind "$1" /etc/hosts && shift && exec "$@"';
  const node = [process.execPath, '--input-type=module', '-e', source];
  const args = ['--mount', '--map-root-user', 'sh', '-c', script, 'sh', hosts, ...node];
  const { stdout } = spawnSync('unshare', args, { encoding: 'utf8' });
  expect([...new Set(stdout.trim().split('\n'))].sort()).toEqual([
    'fine.test found',
    'first.test DeniedAddressError',
    'last.test DeniedAddressError',
  ]);
});

test('a connection that is reset before the answer is a network error, which may be retried', async () => {
  const receiver = await startReceiver((_, request) => request.socket.resetAndDestroy());
  const { result } = await deliver(receiver.url);
  expect(result).toMatchObject({
    outcome: { status: 'failed', reason: 'network_error', message: expect.stringMatching(/\w\.$/) },
    mayRetry: true,
  });
  expect(receiver.requests).toHaveLength(1);
});

test('when the worker aborts, the request ends and no outcome is claimed', async () => {
  const controller = new AbortController();
  const hasClosed: boolean[] = [];
  const receiver = await startReceiver((_, request) => {
    request.socket.once('close', () => hasClosed.push(true));
    controller.abort(SHUTTING_DOWN);
  });
  const { result } = await deliver(receiver.url, { signal: controller.signal, timeoutMs: 1e6 });
  expect(result).toBe('interrupted');
  await eventually(() => hasClosed).toEqual([true]);
});

/** Answers with a body of a type. */
function answer(type: string, body: string, status = 200): (response: ServerResponse) => void {
  return (response) => response.writeHead(status, { 'content-type': type }).end(body);
}

test.each([
  ['application/json', 200],
  ['Application/JSON; charset=utf-8', 201],
  ['application/vnd.example+json', 200],
  ['application/problem+json', 422],
])('a JSON object of the type %s with the status %i is the result of the run', async (type, status) => {
  const text = `{ "n": 12345678901234567890, "pad": "${'x'.repeat(10_000)}" }`;
  const receiver = await startReceiver(answer(type, text, status));
  const { result, stdout } = await deliver(receiver.url);
  expect(result).toMatchObject({ outcome: { httpStatus: status }, result: text });
  expect(stdout).toBe(text.slice(0, 4096));
});

test.each([
  ['text/plain', '{"a":1}'],
  ['application/jsonl', '{"a":1}'],
  ['application/json', ''],
])('an answer of the type %s with the body %j is no result', async (type, body) => {
  const { result } = await deliver((await startReceiver(answer(type, body))).url);
  expect(result).toMatchObject({ outcome: { status: 'succeeded' } });
  expect(result).not.toHaveProperty('result');
  expect(result).not.toHaveProperty('outcome.resultProblem');
});

test.each([
  ['[1]', 'is not a JSON object'],
  ['{"a":', 'is not JSON in UTF-8'],
  [`{"a":"${'x'.repeat(65_536)}"}`, 'is larger than 65536 bytes'],
])('an answer that should be a result and is none leaves the status as it is', async (body, problem) => {
  const { result, notes } = await deliver((await startReceiver(answer('application/json', body))).url);
  const resultProblem = `The receiver's answer ${problem}, so it is not kept as the result.`;
  expect(result).toMatchObject({ outcome: { status: 'succeeded', resultProblem } });
  expect(result).not.toHaveProperty('result');
  expect(notes).toContain(resultProblem);
});

test('an answer that breaks off is no result', async () => {
  const head = 'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n';
  const { result } = await deliver(await startRaw((socket) => socket.end(`${head}{"a":1}`)));
  expect(result).toMatchObject({
    outcome: {
      status: 'succeeded',
      resultProblem: "The receiver's answer did not arrive completely, so it is not kept as the result.",
    },
  });
});
