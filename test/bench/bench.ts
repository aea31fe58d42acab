import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { cpus, tmpdir, totalmem } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { findRedisServer } from '../../src/local/find-redis-server.ts';
import { run as runProgram } from '../../src/local/programs.ts';
import type { BenchContext, Part, Table } from './part.ts';
import { deliver } from './parts/deliver.ts';
import { grow } from './parts/grow.ts';
import { scale } from './parts/scale.ts';
import { start } from './parts/start.ts';
import { tableText } from './report.ts';

const PARTS: readonly Part[] = [deliver, grow, scale, start];

const { values, positionals } = parseArgs({
  options: {
    rounds: { type: 'string', default: '5' },
    seconds: { type: 'string', default: '5' },
    million: { type: 'boolean', default: false },
    json: { type: 'string' },
    help: { type: 'boolean', default: false },
  },
  allowPositionals: true,
});
const [rounds, seconds] = [Number(values.rounds), Number(values.seconds)];
const chosen = PARTS.filter(({ name }) => positionals.length === 0 || positionals.includes(name));
const isWrong = !(Number.isInteger(rounds) && rounds > 0 && seconds > 0);
if (values.help || isWrong || positionals.some((name) => !PARTS.some((part) => part.name === name))) {
  console.error('usage: npm run bench -- [part…] [--rounds N] [--seconds N] [--million] [--json FILE]\n');
  for (const { name, summary } of PARTS) console.error(`  ${name.padEnd(10)} ${summary}`);
  process.exit(values.help ? 0 : 2);
}

const report = (message: string) => console.error(message);
const redisServer = await findRedisServer({ env: process.env, report });
const directory = await mkdtemp(join(tmpdir(), 'orc-bench-'));
try {
  const machine = {
    processor: cpus()[0]?.model ?? 'unknown',
    cores: cpus().length,
    memoryGiB: Math.round(totalmem() / 1_073_741_824),
    node: process.version,
    redis: (await runProgram(redisServer.command, ['--version'], redisServer.env)).trim(),
  };
  const settings = { rounds, seconds, million: values.million };
  for (const [name, value] of Object.entries({ ...machine, ...settings }))
    console.log(`${name.padEnd(12)} ${value}`);

  const tables: (Table & { part: string })[] = [];
  for (const part of chosen) {
    report(`\n${part.name}: ${part.summary}`);
    for (const table of await play(part)) {
      tables.push({ part: part.name, ...table });
      console.log(`\n${tableText(table)}`);
    }
  }
  if (values.json)
    await writeFile(values.json, `${JSON.stringify({ machine, settings, tables }, null, 2)}\n`);
} finally {
  await rm(directory, { recursive: true, force: true });
}

async function play(part: Part): Promise<Table[]> {
  const undos: (() => unknown)[] = [];
  const context: BenchContext = {
    redisServer,
    directory,
    rounds,
    seconds,
    million: values.million,
    progress: (message) => report(`  ${message}`),
    defer: (undo) => void undos.push(undo),
  };
  try {
    return await part.run(context);
  } finally {
    for (const undo of undos.reverse()) await undo();
  }
}
