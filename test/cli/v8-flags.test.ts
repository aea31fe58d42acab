import { expect, onTestFinished, test } from 'vitest';
import { startOrc } from '../support/orc-process.ts';
import { openTestStore } from '../support/store.ts';

const store = openTestStore();

/** Requests that are sent at the same time. */
const BURST = 50;

test('V8 never decides to allocate what requests need among its old objects', async () => {
  const api = startOrc(['api'], {
    env: { PORT: '0', LOG_LEVEL: 'info', ...store.env },
    nodeOptions: ['--trace-gc', '--trace-pretenuring-statistics'],
  });
  onTestFinished(async () => void (await api.stop()));
  const { url } = await api.record(({ msg }) => msg === 'api listens');
  const since = api.lines.length;
  const collections = () => api.lines.slice(since).filter((line) => line.includes(': Scavenge ')).length;
  while (collections() < 5) {
    const answers = Array.from({ length: BURST }, () => fetch(`${url}/orc/health`));
    for (const answer of await Promise.all(answers)) await answer.arrayBuffer();
  }
  // V8 says so at each collection, whatever it decides.
  expect(api.lines.slice(since).filter((line) => line.includes('pretenuring: '))).toEqual([]);
});
