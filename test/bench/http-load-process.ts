import { closedLoop } from './http-closed-loop.ts';
import type { Load } from './http-load.ts';
import { openModel } from './http-open-client.ts';

/** The load generator's process: takes one load after the other from its parent and ends with it. */
process.on('message', (load: Load) => {
  const running = load.rate === undefined ? closedLoop(load) : openModel({ ...load, rate: load.rate });
  void running
    .catch((error: unknown) => ({ error: error instanceof Error ? error.message : String(error) }))
    .then((answer) => process.send?.(answer));
});
process.once('disconnect', () => process.exit());
