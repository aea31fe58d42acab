import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { type Job, Queue, Worker } from 'bullmq';
import { Redis } from 'ioredis';

/** What is left of a worker without orc. It sends one message when it has begun, and ends with its parent. */
export type BareSettings = { count: number; concurrency: number; payload: string } & (
  | { kind: 'spawn'; argv: string[] }
  | {
      kind: 'bullmq';
      redis: { host: string; port: number };
      queue: string;
      /** What each job is POSTed to; without it, a job does nothing. */
      url?: string;
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
  const { count, concurrency, payload, redis, queue: name, url } = settings;
  const connection = new Redis({ ...redis, maxRetriesPerRequest: null });
  const queue = new Queue<Payload>(name, { connection });
  for (let added = 0; added < count; added += BATCH) {
    const batch = Array.from({ length: Math.min(BATCH, count - added) }, () => ({
      name: 'bare',
      data: { payload },
    }));
    await queue.addBulk(batch);
  }
  const act = async ({ data }: Job<Payload>) => {
    if (url !== undefined) await post(url, data.payload);
  };
  new Worker<Payload>(name, act, { connection, concurrency });
  process.send?.('begun');
}

interface Payload {
  payload: string;
}

async function post(url: string, payload: string): Promise<void> {
  const headers = { 'content-type': 'application/json', 'content-length': payload.length };
  const sent = request(url, { method: 'POST', headers });
  sent.end(payload);
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  response.resume();
  await once(response, 'end');
}

process.once('disconnect', () => process.exit());
const settings = JSON.parse(process.argv[2] ?? '') as BareSettings;
if (settings.kind === 'spawn') await spawnAll(settings.argv, settings);
else await work(settings);
