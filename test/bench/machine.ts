import { readFileSync } from 'node:fs';
import { open, statfs } from 'node:fs/promises';
import { cpus, release, totalmem, type } from 'node:os';
import { join } from 'node:path';
import type { RedisServer } from '../../src/local/find-redis-server.ts';
import { run } from '../../src/local/programs.ts';
import { median } from './part.ts';

const PACKAGES = ['fastify', 'bullmq', 'ioredis', 'autocannon'];

const SYNCS = 200;

/** As in statfs(2) of Linux. */
const TMPFS = 0x01021994;

/** What the figures depend on. @param directory where Redis keeps its data */
export async function describeMachine(directory: string, redis: RedisServer) {
  const isInMemory = (await statfs(directory)).type === TMPFS;
  return {
    processor: cpus()[0]?.model ?? 'unknown',
    cores: cpus().length,
    memoryGiB: Math.round(totalmem() / 1_073_741_824),
    system: `${type()} ${release()}`,
    fdatasync: `${Math.round(await syncUs(directory))} µs${isInMemory ? ', in memory: TMPDIR names another place' : ''}`,
    node: process.version,
    ...Object.fromEntries(PACKAGES.map((name) => [name, versionOf(name)])),
    redis: (await run(redis.command, ['--version'], redis.env)).trim(),
  };
}

/** The median time to have a kilobyte written to the disk, which is what `appendfsync always` waits for. */
async function syncUs(directory: string): Promise<number> {
  const file = await open(join(directory, 'sync'), 'a');
  const times: number[] = [];
  for (let count = 0; count < SYNCS; count += 1) {
    const started = performance.now();
    await file.write(Buffer.alloc(1024));
    await file.datasync();
    times.push((performance.now() - started) * 1000);
  }
  await file.close();
  return median(times);
}

/** Of a package that is installed; seen from this file's place in `.bench/test/bench`. */
function versionOf(name: string): string {
  const file = new URL(`../../../node_modules/${name}/package.json`, import.meta.url);
  return (JSON.parse(readFileSync(file, 'utf8')) as { version: string }).version;
}
