import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { type Job, Queue, Worker } from 'bullmq';
import { Redis } from 'ioredis';
import { pino } from 'pino';
import { Webhook } from 'standardwebhooks';

/** What is left of a worker without orc. It sends one message when it has begun, and ends with its parent. */
export type BareSettings = { count: number; concurrency: number; payload: string } & (
  | { kind: 'spawn'; argv: string[] }
  | {
      kind: 'bullmq';
      redis: { host: string; port: number };
      queue: string;
      /** What each job is POSTed to; without it, a job does nothing. */
      url?: string;
      /** Whether it is done with the least that orc has to do besides: read, sign, note, log and list. */
      isRecorded?: boolean;
    }
);

/** When the commands of a bare `spawn` ended, in milliseconds: its message. */
export type SpawnEnds = number[];

/** Jobs are added in batches of this size. */
const BATCH = 1000;

async function spawnAll(argv: string[], settings: BareSettings): Promise<void> {
  const { count, concurrency, payload } = settings;
  const [program = '', ...args] = argv;
  const ends: SpawnEnds = [];
  let started = 0;
  const spawnNext = async () => {
    while (started < count) {
      started += 1;
      const child = spawn(program, args, { stdio: 'pipe' });
      child.stdin.on('error', () => undefined).end(payload);
      await once(child, 'exit');
      ends.push(performance.now());
    }
  };
  await Promise.all(Array.from({ length: concurrency }, spawnNext));
  process.send?.(ends);
}

async function work(settings: Extract<BareSettings, { kind: 'bullmq' }>): Promise<void> {
  const { count, concurrency, payload, redis, queue: name, url, isRecorded = false } = settings;
  const connection = new Redis({ ...redis, maxRetriesPerRequest: null });
  const queue = new Queue<Payload>(name, { connection });
  for (let added = 0; added < count; added += BATCH) {
    const batch = Array.from({ length: Math.min(BATCH, count - added) }, () => ({
      name: 'bare',
      data: { payload },
    }));
    await queue.addBulk(batch);
  }
  const act = () => {
    if (url === undefined) return async () => undefined;
    if (isRecorded) return recording(connection, url);
    return async ({ data }: Job<Payload>) => {
      await post(url, data.payload);
    };
  };
  const worker = new Worker<Payload>(name, act(), { connection, concurrency });
  const scripts = scriptsOf(connection);
  if (isRecorded) worker.on('completed', ({ id = '' }) => void scripts.list('open', 'ended', 'last', id));
  process.send?.('begun');
}

interface Payload {
  payload: string;
}

/** Each as one script, so that it is one command. */
interface Scripts {
  begin(automation: string, steps: string, step: string): Promise<(string | null)[]>;
  append(log: string, text: string): Promise<string>;
  list(open: string, ended: string, last: string, id: string): Promise<null>;
}

function scriptsOf(redis: Redis): Scripts {
  return redis as unknown as Scripts;
}

/** What is left of a run when everything is left out that it does not take to execute it as the contract says. */
function recording(redis: Redis, url: string) {
  const begin = "redis.call('RPUSH', KEYS[2], ARGV[1]) return redis.call('HMGET', KEYS[1], 'url', 'secret')";
  const append = "redis.call('XADD', KEYS[1], '*', 'd', ARGV[1]) return redis.call('EXPIRE', KEYS[1], 60)";
  const list =
    "redis.call('ZREM', KEYS[1], ARGV[1]) redis.call('ZADD', KEYS[2], 0, ARGV[1]) redis.call('HSET', KEYS[3], 'bare', 1)";
  redis.defineCommand('begin', { numberOfKeys: 2, lua: begin });
  redis.defineCommand('append', { numberOfKeys: 1, lua: append });
  redis.defineCommand('list', { numberOfKeys: 3, lua: list });
  const scripts = scriptsOf(redis);
  const logger = pino(pino.destination({ dest: 1, sync: false }));
  const signer = new Webhook(`whsec_${Buffer.alloc(32).toString('base64')}`);
  return async ({ id = '', data: { payload } }: Job<Payload>) => {
    logger.info({ id, status: 'running' }, 'run started');
    await scripts.begin(
      'automation',
      `steps:${id}`,
      '{"attempt":1,"worker":"bare","startedAt":1700000000000}',
    );
    const timestamp = new Date();
    const { statusCode, rawHeaders } = await post(url, payload, {
      'webhook-id': id,
      'webhook-timestamp': String(Math.floor(timestamp.getTime() / 1000)),
      'webhook-signature': signer.sign(id, timestamp, payload),
    });
    void scripts.append(`log:${id}`, `HTTP ${statusCode}\n${rawHeaders.join('\n')}`);
    logger.info({ id, status: 'succeeded', httpStatus: statusCode }, 'run ended');
  };
}

async function post(
  url: string,
  payload: string,
  signature: Record<string, string> = {},
): Promise<IncomingMessage> {
  const headers = { 'content-type': 'application/json', 'content-length': payload.length, ...signature };
  const sent = request(url, { method: 'POST', headers });
  sent.end(payload);
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  response.resume();
  await once(response, 'end');
  return response;
}

process.once('disconnect', () => process.exit());
const settings = JSON.parse(process.argv[2] ?? '') as BareSettings;
if (settings.kind === 'spawn') await spawnAll(settings.argv, settings);
else await work(settings);
