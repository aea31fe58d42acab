import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { expect, onTestFinished, test } from 'vitest';
import { signalGroup, signalMarked } from '../../src/worker/run-processes.ts';
import { newAttempt } from './workbench.ts';

const isLinux = process.platform === 'linux';
const { id } = newAttempt();

async function startMarked(env: NodeJS.ProcessEnv) {
  const child = spawn('sh', ['-c', 'sh -c "echo; read line"; :'], {
    detached: true,
    env: { ...process.env, ...env },
  });
  const group = child.pid ?? 0;
  onTestFinished(() => signalGroup(group, 'SIGKILL'));
  // By then both the shell and the one that it started have their environment.
  await once(child.stdout, 'data');
  return group;
}

test('processes are found by their exact mark, on Linux', async () => {
  await startMarked({ ORC_WORKER: id, ORC_RUN_ID: 'run_1', ORC_ATTEMPT: '1' });
  await startMarked({ ORC_WORKER: id, ORC_RUN_ID: 'run_1', ORC_ATTEMPT: '12' });
  await startMarked({ ORC_WORKER: `${id}0`, ORC_RUN_ID: 'run_1', ORC_ATTEMPT: '1', NOT_ORC_WORKER: id });
  // Two shells each.
  const count = async (...marks: Parameters<typeof signalMarked>[0]) =>
    (await signalMarked(marks, 'SIGCONT')) / 2;
  const found = [
    await count({ ORC_WORKER: id }),
    await count({ ORC_WORKER: id, ORC_RUN_ID: 'run_1', ORC_ATTEMPT: '1' }),
    await count({ ORC_WORKER: id, ORC_RUN_ID: 'run_', ORC_ATTEMPT: '1' }),
    await count({ ORC_WORKER: id }, { ORC_WORKER: `${id}0` }),
    await count(),
  ];
  expect(found).toEqual(isLinux ? [2, 1, 0, 3, 0] : [0, 0, 0, 0, 0]);
});

test('a group that has got a signal already does not get it twice', async () => {
  // What the test before has killed may still be about to end.
  const mark = { ORC_WORKER: newAttempt().id };
  const group = await startMarked(mark);
  expect(await signalMarked([mark], 'SIGCONT', group)).toBe(0);
  expect(await signalMarked([mark], 'SIGCONT', group + 1)).toBe(isLinux ? 2 : 0);
});
