import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

const DEADLINE_MS = 5000;
const POLL_MS = 20;

/**
 * Kills every process whose arguments or environment name a directory, and waits until none is left: commands that
 * outlived their worker, and what they started. Does nothing where there is no /proc; there they end by themselves.
 *
 * @throws when one cannot be ended
 */
export async function endProcessesNaming(directory: string): Promise<void> {
  const endsAt = Date.now() + DEADLINE_MS;
  for (;;) {
    const found = processesNaming(directory);
    if (found.length === 0) return;
    if (Date.now() > endsAt) throw new Error(`these processes cannot be ended: ${found.join(', ')}`);
    for (const pid of found) kill(pid);
    await sleep(POLL_MS);
  }
}

function processesNaming(directory: string): number[] {
  return list('/proc').filter(
    (pid) =>
      pid !== process.pid &&
      ['cmdline', 'environ'].some((file) => {
        try {
          return readFileSync(`/proc/${pid}/${file}`).includes(directory);
        } catch {
          // It has ended meanwhile, or is another user's.
          return false;
        }
      }),
  );
}

function list(directory: string): number[] {
  try {
    return readdirSync(directory).map(Number).filter(Number.isInteger);
  } catch {
    return [];
  }
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It ended a moment ago.
  }
}
