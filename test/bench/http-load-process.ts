import { closedLoop } from './http-closed-loop.ts';
import type { Load, Sample } from './http-load.ts';
import { openModel } from './http-open-client.ts';

/** The load generator's process: takes one load after the other from its parent and ends with it. */
process.on('message', (load: Load) => {
  void sample(load)
    .catch((error: unknown) => ({ error: error instanceof Error ? error.message : String(error) }))
    .then((result) => process.send?.(result));
});
process.once('disconnect', () => process.exit());

function sample({ rate, ...load }: Load): Promise<Sample> {
  if (rate !== undefined) return openModel({ ...load, rate });
  return closedLoop(load);
}
