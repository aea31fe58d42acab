import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';

/** Below the ports that systems give to clients, so that none of them takes one meanwhile. */
const PORTS = { from: 10_000, to: 20_000 };

/** A free port of the loopback interface, of which the ports that are higher by the offsets are free as well. */
export async function freePortWith(...offsets: number[]): Promise<number> {
  for (;;) {
    const port = randomInt(PORTS.from, PORTS.to);
    const areFree = await Promise.all([0, ...offsets].map((offset) => isFree(port + offset)));
    if (areFree.every(Boolean)) return port;
  }
}

async function isFree(port: number): Promise<boolean> {
  const probe = createServer();
  try {
    probe.listen(port, '127.0.0.1');
    await once(probe, 'listening');
    return true;
  } catch {
    return false;
  } finally {
    probe.close();
  }
}
