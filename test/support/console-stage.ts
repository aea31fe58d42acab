import type { Store } from '../../src/store/store.ts';
import { acceptRun, createTriggered } from './runs.ts';
import { script } from './store.ts';

const DAY = JSON.stringify({ ref: 'refs/heads/main', commit: '8f14e45fceea167a5a36dedd4bea2543' });

const BUILD = `
  const print = (text) => process.stdout.write(text + '\\n');
  print('\\x1b[1m> shop@4.2.0 build\\x1b[0m');
  print('\\x1b[36mtransforming\\x1b[0m 1284 modules');
  print('\\x1b[32m✓\\x1b[0m built in 1.87s');
  print('\\x1b[33mwarning\\x1b[0m one chunk is larger than 500 kB');
  require('node:fs').writeFileSync(process.env.ORC_ARTIFACTS_DIR + '/report.html', '<h1>report</h1>');
  require('node:fs').writeFileSync(process.env.ORC_RESULT_FILE, JSON.stringify({ version: '4.2.0', modules: 1284 }));
`;

const REPORT = `
  console.log('connecting to reports.internal:5432');
  console.error('\\x1b[31mTraceback (most recent call last):\\x1b[0m');
  console.error('\\x1b[31m  File "report.py", line 31, in <module>\\x1b[0m');
  console.error('OperationalError: could not connect to server: No route to host');
  process.exit(1);
`;

/** Prints a line now and then, until it is cancelled. */
export const SLOW = `
  let line = 0;
  setInterval(() => console.log('\\x1b[34mstep ' + ++line + '\\x1b[0m of many'), 100);
`;

/** An installation in use: automations whose runs succeed, fail, and go on. It needs a worker. */
export async function fillStore(store: Store) {
  const build = await createTriggered(store, 'build-shop', {
    name: 'Builds the shop',
    action: script(BUILD),
  });
  const report = await createTriggered(store, 'nightly-report', {
    name: 'Sends last night’s figures',
    action: script(REPORT),
    attempts: 2,
  });
  const slow = await createTriggered(store, 'reindex', {
    name: 'Rebuilds the search index',
    action: script(SLOW),
  });
  const built: string[] = [];
  for (let count = 0; count < 6; count++) built.push(await acceptRun(store, build, DAY));
  const failed = await acceptRun(store, report, '{"day":"2026-11-22","format":"pdf"}');
  const live = await acceptRun(store, slow);
  return { built, failed, live, automations: { build, report, slow } };
}
