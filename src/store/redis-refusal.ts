import { errorText } from '../core/error-record.ts';

/** Why Redis refuses a command that it understands, by the first word of its answer. */
const CURES: Readonly<Record<string, string>> = {
  READONLY: 'set REDIS_URL to the master; this is a replica',
  OOM: 'redis-cli config set maxmemory <more>',
  MISCONF: 'free disk space for Redis, then: redis-cli bgsave',
  NOPERM: 'give the login the rights that docs/redis.md lists',
  NOREPLICAS: 'start the replicas of this master',
};

/** A refusal of Redis in words, and what ends it. */
export interface RedisRefusal {
  message: string;
  cure: string;
}

/** @returns undefined for any other error */
export function refusalIn(error: unknown): RedisRefusal | undefined {
  if (!(error instanceof Error)) return undefined;
  // A transaction fails with what its first command was answered.
  const { previousErrors: [first] = [] } = error as Error & { previousErrors?: Error[] };
  const { message } = first ?? error;
  const cure = Object.entries(CURES).find(([code]) => message.includes(code))?.[1];
  return cure === undefined ? undefined : { message: refusalText(message), cure };
}

/** Redis' own words, without secrets and without the script that they are about. */
export function refusalText(message: string): string {
  return errorText(message).replace(/\.? script: \w+, on @user_script:\d+\.?$/, '');
}
