import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readdirSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { expect, onTestFinished, test } from 'vitest';
import { compiled } from '../support/repository.ts';
import { openFolder } from '../worker/workbench.ts';

const folder = openFolder();

/** For each line that it reads, a process tries to take the lock, and for each that it got it prints `taken`. */
const CONTENDER = `
  import { createInterface } from 'node:readline';
  import { takeLock } from '${compiled('core/folder-lock.js')}';
  const [folder] = process.argv.slice(1);
  let lock;
  for await (const line of createInterface({ input: process.stdin })) {
    if (line === 'release') await lock.release();
    else lock = await takeLock(folder, folder, () => ({ pid: process.pid }));
    console.log(line === 'release' ? 'released' : lock.status);
  }`;

function startContender(directory: string) {
  const child = spawn(process.execPath, ['--input-type=module', '--eval', CONTENDER, '--', directory], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
  const ask = async (line: string): Promise<string> => {
    child.stdin.write(`${line}\n`);
    return (await lines.next()).value;
  };
  return { child, ask };
}

test('of all who try at once one takes the lock, whether the one before released it or was killed', async () => {
  const directory = folder('contended');
  mkdirSync(directory);
  let contenders = Array.from({ length: 6 }, () => startContender(directory));
  for (let round = 0; round < 30; round += 1) {
    const results = await Promise.all(contenders.map(({ ask }) => ask('take')));
    expect([round, results.filter((result) => result === 'taken')]).toEqual([round, ['taken']]);
    expect(results.filter((result) => result === 'held')).toHaveLength(contenders.length - 1);
    const holder = contenders[results.indexOf('taken')];
    if (round % 3 === 0) {
      holder?.child.kill('SIGKILL');
      await once(holder?.child ?? process, 'close');
      contenders = [...contenders.filter((each) => each !== holder), startContender(directory)];
    } else {
      expect(await holder?.ask('release')).toBe('released');
    }
  }
  const [first] = contenders;
  expect(await first?.ask('take')).toBe('taken');
  expect(await first?.ask('release')).toBe('released');
  expect(readdirSync(directory)).toEqual([]);
});
