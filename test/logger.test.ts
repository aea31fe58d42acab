import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { expect, onTestFinished, test } from 'vitest';
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
