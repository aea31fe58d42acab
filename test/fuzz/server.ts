import { createLogger } from '../../src/logger.ts';
import { startTarget, type Target } from './target.ts';

/** What the process of the target is asked, and says. */
export type ToServer = 'memory' | 'close';
export type FromServer = { target: Target } | { rssBytes: number };

const [redisUrl = '', prefix = ''] = process.argv.slice(2);
const { target, close } = await startTarget(redisUrl, prefix, createLogger('info', 'api'));
const say = (message: FromServer) => process.send?.(message);

process.on('message', async (message: ToServer) => {
  if (message === 'close') {
    await close();
    process.disconnect();
    return;
  }
  // Garbage that was not collected yet would look like a leak.
  globalThis.gc?.();
  say({ rssBytes: process.memoryUsage.rss() });
});
process.on('disconnect', () => process.exit());
say({ target });
