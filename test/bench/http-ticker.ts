import { parentPort, workerData } from 'node:worker_threads';

/** A clock for the open model: timers of Node have a resolution of a millisecond, waiting on memory has not. */
export interface Ticks {
  periodMs: number;
  /** One number of shared memory; anything but 0 ends the ticking. */
  ending: Int32Array;
}

const { periodMs, ending } = workerData as Ticks;
const started = performance.now();
for (let tick = 1; Atomics.load(ending, 0) === 0; tick += 1) {
  Atomics.wait(ending, 0, 0, Math.max(started + tick * periodMs - performance.now(), 0));
  parentPort?.postMessage(tick);
}
