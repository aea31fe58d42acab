import { LoadGenerator } from './http-load.ts';
import { BenchRedis } from './http-redis.ts';
import { type Server, startOrcApi } from './http-servers.ts';
import type { BenchContext } from './part.ts';

/** As many connections as the targets are set for. */
export const CONNECTIONS = 32;

export const SLUG = 'bench';

/** Redis with `appendfsync always`, one automation, `orc api` and who asks it. */
export interface Installation {
  redis: BenchRedis;
  apiKey: string;
  orc: Server;
  generator: LoadGenerator;
}

/** @param env what `orc api` gets besides where Redis is */
export async function startInstallation(
  context: BenchContext,
  env: NodeJS.ProcessEnv = {},
): Promise<Installation> {
  const redis = await BenchRedis.start(context, 'always');
  const apiKey = await redis.createAutomation(SLUG);
  const orc = await startOrcApi(context, { ...redis.env, ...env });
  const generator = new LoadGenerator();
  context.defer(() => generator.stop());
  return { redis, apiKey, orc, generator };
}
