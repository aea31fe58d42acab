import { setFlagsFromString } from 'node:v8';

const FLAGS = [
  // The heap's old objects are collected when they have grown by so many percent. V8 would let them grow to several times
  // as much, of which nearly all is over: 25 to 35 MB of a worker under load.
  '--heap-growing-percent=20',
  // V8 would make what a line of code allocates among the old objects from the start, when much of it was alive at one
  // collection, such as that in the middle of a burst. Then nothing that it refers to is ever collected young: twice the CPU
  // for a request, and three times its p99, in one process of twenty, or of five with Node 24, for as long as it lives.
  '--no-allocation-site-pretenuring',
];

/**
 * V8's interpreter and its best compiler are enough. The two compilers in between hold 20 MB of an API with Node 24 and 26. The
 * best one waits until a function was called 3,000 times, for they have had their turn before; without them, 1,000 times is
 * early enough to take less CPU than with all of them. Only for the V8 of Node 22 to 26: others name their flags
 * differently, and say so on standard error.
 */
const ONE_COMPILER = ['--no-maglev', '--no-sparkplug', '--invocation-count-for-turbofan=1000'];
const ONE_COMPILER_V8 = /^1[234]\./;

/** Makes V8 fit for a process that serves for weeks. Call it before most of the code is loaded. */
export function setV8Flags(): void {
  const flags = ONE_COMPILER_V8.test(process.versions.v8) ? [...FLAGS, ...ONE_COMPILER] : FLAGS;
  for (const flag of flags) setFlagsFromString(flag);
}
