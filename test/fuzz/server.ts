import { createLogger } from '../../src/logger.ts';
import { startTarget, type Target } from './target.ts';

/** What the process of the target is asked, and says. */
export type ToServer = 'memory' | 'close';
export type FromServer = { target: Target } | { memory: Memory };

/** In bytes. What lives is in the heap, or in buffers outside of it; the rest of RSS is what the allocators hold. */
export interface Memory {
  rss: number;
  heapUsed: number;
  external: number;
}

/** The first collection frees what is garbage, and the ones after it give its room back. */
const COLLECTIONS = 3;

const [redisUrl = '', prefix = ''] = process.argv.slice(2);
const { target, close } = await startTarget(redisUrl, prefix, createLogger('debug', 'api'));
const say = (message: FromServer) => process.send?.(message);

process.on('message', async (message: ToServer) => {
  if (message === 'close') {
    await close();
    process.disconnect();
    return;
  }
  // Garbage, or room for more of it, would look like a leak.
  for (let round = 0; round < COLLECTIONS; round += 1) globalThis.gc?.();
  const { rss, heapUsed, external } = process.memoryUsage();
  say({ memory: { rss, heapUsed, external } });
});
process.on('disconnect', () => process.exit());
say({ target });
