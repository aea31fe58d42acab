import { rmSync } from 'node:fs';
import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { findRedisServer } from '../../src/local/find-redis-server.ts';
import { describeMachine } from './machine.ts';
import type { BenchContext, Part, Table } from './part.ts';
import { accept } from './parts/accept.ts';
import { consolePart } from './parts/console.ts';
import { deliver } from './parts/deliver.ts';
import { grow } from './parts/grow.ts';
import { health } from './parts/health.ts';
import { kinds } from './parts/kinds.ts';
import { open } from './parts/open.ts';
import { results } from './parts/results.ts';
import { scale } from './parts/scale.ts';
import { start } from './parts/start.ts';
import { workspace } from './parts/workspace.ts';
import { tableText } from './report.ts';

const PARTS: readonly Part[] = [
  accept,
  kinds,
  open,
  health,
  deliver,
  results,
  grow,
  scale,
  workspace,
  consolePart,
  start,
];

const { values, positionals } = readArguments();
const [rounds, seconds] = [Number(values.rounds), Number(values.seconds)];
const rates = values.rates.split(',').map(Number);
const chosen = PARTS.filter(({ name }) => positionals.length === 0 || positionals.includes(name));
const isPositive = (value: number) => Number.isInteger(value) && value > 0;
const isWrong = ![rounds, ...rates].every(isPositive) || !(seconds > 0);
if (values.help) explain(0);
if (isWrong || positionals.some((name) => !PARTS.some((part) => part.name === name))) explain(2);

const report = (message: string) => console.error(message);
const redisServer = await findRedisServer({ env: process.env, report });
const directory = await mkdtemp(join(tmpdir(), 'orc-bench-'));
// What was started ends with this process, but not when a signal ends that without further ado.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1));
process.once('exit', () => rmSync(directory, { recursive: true, force: true }));

const machine = await describeMachine(directory, redisServer);
const settings = { rounds, seconds, million: values.million, rates };
for (const [name, value] of Object.entries({ ...machine, ...settings }))
  console.log(`${name.padEnd(12)} ${value}`);

const tables: (Table & { part: string })[] = [];
for (const part of chosen) {
  report(`\n${part.name}: ${part.summary}`);
  for (const table of await play(part)) {
    tables.push({ part: part.name, ...table });
    console.log(`\n${tableText(table)}`);
  }
  // After each part, so that one that fails takes nothing with it.
  const result = { machine, settings, tables };
  if (values.json) await writeFile(values.json, `${JSON.stringify(result, null, 2)}\n`);
}

async function play(part: Part): Promise<Table[]> {
  const undos: (() => unknown)[] = [];
  const context: BenchContext = {
    redisServer,
    directory,
    rounds,
    seconds,
    million: values.million,
    rates,
    progress: (message) => report(`  ${message}`),
    defer: (undo) => void undos.push(undo),
  };
  try {
    return await part.run(context);
  } finally {
    for (const undo of undos.reverse()) await undo();
  }
}

function readArguments() {
  try {
    return parseArgs({
      options: {
        rounds: { type: 'string', default: '5' },
        seconds: { type: 'string', default: '5' },
        million: { type: 'boolean', default: false },
        rates: { type: 'string', default: '250,500,1000,2000,4000,6000,8000,12000,16000' },
        json: { type: 'string' },
        help: { type: 'boolean', default: false },
      },
      allowPositionals: true,
    });
  } catch (error) {
    console.error(`${(error as Error).message}\n`);
    return explain(2);
  }
}

function explain(exitCode: number): never {
  console.error('usage: npm run bench -- [part…] [--rounds N] [--seconds N] [--json FILE]');
  console.error('       of open: [--rates N,…]; of grow and console: [--million]\n');
  for (const { name, summary } of PARTS) console.error(`  ${name.padEnd(10)} ${summary}`);
  process.exit(exitCode);
}
