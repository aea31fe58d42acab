import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { expect, onTestFinished, test, vi } from 'vitest';
import { limitRepeats } from '../src/logger.ts';
import { compiled } from './support/repository.ts';

/** Node's arguments for a process that logs as the API does. */
function loggingBy(source: string): string[] {
  const program = `
    import { createLogger, flush } from '${compiled('logger.js')}';
    const logger = createLogger('info', 'api');
    ${source}`;
  return ['--input-type=module', '--eval', program];
}

const LOG_ALL = 'for (let index = 0; index < 1000; index += 1) logger.info("line " + index);';

const ALL_LINES = Array.from({ length: 1000 }, (_, index) => `line ${index}`);

/** The messages that a process writes which logs all lines and then ends in some way. */
function messagesOf(ending: string) {
  const { stdout } = spawnSync(process.execPath, loggingBy(LOG_ALL + ending), { encoding: 'utf8' });
  return stdout.match(/(?<="msg":")[^"]+/g);
}

test.each([
  ['ends by itself', ''],
  ['is killed when it has waited for its log', "await flush(logger); process.kill(process.pid, 'SIGKILL');"],
])('every line of a process that %s is written, in order', (_, ending) => {
  expect(messagesOf(ending)).toEqual(ALL_LINES);
});

// A write that is under way may end after what the destination writes at the exit, so that no order is claimed.
test('no line of a process that is ended at once is lost', () => {
  expect(messagesOf('process.exit();')?.toSorted()).toEqual(ALL_LINES.toSorted());
});

test('a line is written though no other comes', async () => {
  const waiting = spawn(
    process.execPath,
    loggingBy("logger.info('alone'); setInterval(() => undefined, 1000);"),
  );
  onTestFinished(() => void waiting.kill());
  const [line] = (await once(waiting.stdout, 'data')) as [Buffer];
  expect(String(line)).toContain('"msg":"alone"');
});

test('a secret is in no line, whatever field of the line holds it', () => {
  const secret = 'a "quoted" secret';
  const program = `
    import { createLogger } from '${compiled('logger.js')}';
    const logger = createLogger('info', 'worker', [${JSON.stringify(secret)}]);
    logger.info({ field: ${JSON.stringify(secret)} }, 'before ' + ${JSON.stringify(secret)} + ' after');`;
  const { stdout } = spawnSync(process.execPath, ['--input-type=module', '--eval', program], {
    encoding: 'utf8',
  });
  expect(JSON.parse(stdout)).toMatchObject({ field: '[redacted]', msg: 'before [redacted] after' });
});

test('what others wrote moves no cursor of a terminal that shows the log, and is the same when it is parsed', () => {
  // C0, C1 (a control sequence in one character), DEL, a text direction, a line separator.
  const text = 'a\u001b[31m\u009b2J\u0085\u007f\u202e\u2028 ü 😀 \u{e0041}';
  const program = loggingBy(`logger.info({ field: ${JSON.stringify(text)} }, ${JSON.stringify(text)});`);
  const { stdout } = spawnSync(process.execPath, program, { encoding: 'utf8' });
  expect(stdout).toMatch(/^[^\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+\n$/u);
  expect(JSON.parse(stdout)).toMatchObject({ field: text, msg: text });
});

test('an error is logged without what was sent', () => {
  const source = `
    const error = new Error('WRONGPASS');
    error.command = { name: 'auth', args: ['s3cret'] };
    error.cause = Object.assign(new Error('redis://user:s3cret@cache'), { code: 'ERR', spawnargs: ['s3cret'] });
    logger.error({ err: error }, 'failed');
    logger.error(error);`;
  const { stdout } = spawnSync(process.execPath, loggingBy(source), { encoding: 'utf8' });
  const cause = { type: 'Error', message: 'redis://***@cache', code: 'ERR' };
  for (const line of stdout.trim().split('\n')) {
    expect(JSON.parse(line)).toMatchObject({ err: { type: 'Error', message: 'WRONGPASS', cause } });
  }
  expect(stdout).not.toContain('s3cret');
});

test('an error that comes again and again is told once, and then once a minute with a count', () => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  const told: [string, number | undefined][] = [];
  const report = limitRepeats(({ message }, count) => told.push([message, count]));
  for (let index = 1; index <= 1000; index += 1) report(new Error(`run run_${index} was refused`));
  report(new Error('another'));
  expect(told.splice(0)).toEqual([
    ['run run_1 was refused', undefined],
    ['another', undefined],
  ]);
  vi.advanceTimersByTime(60_000);
  expect(told.splice(0)).toEqual([['run run_1000 was refused', 999]]);
  report(new Error('run run_1001 was refused'));
  expect(told).toEqual([]);
  vi.advanceTimersByTime(60_000);
  expect(told.splice(0)).toEqual([['run run_1001 was refused', 1]]);
  vi.advanceTimersByTime(120_000);
  report(new Error('run run_1002 was refused'));
  expect(told).toEqual([['run run_1002 was refused', undefined]]);
});

test('errors of ever new kinds are told of a limited number of times', () => {
  let count = 0;
  const report = limitRepeats(() => {
    count += 1;
  });
  for (let index = 0; index < 1000; index += 1) report(new Error('x'.repeat(index % 100)));
  expect(count).toBeLessThan(30);
});
