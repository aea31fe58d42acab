import { cp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { RedisServer } from '../../src/local/find-redis-server.ts';
import { type RunningRedisServer, startRedisServer } from '../../src/local/redis-server.ts';

/** A Redis that acknowledges nothing before it is on disk, and comes back on the same data and port. */
export class BreakableRedis {
  readonly #server: RedisServer;
  readonly #dataDir: string;
  #running: RunningRedisServer | undefined;
  #port = 0;

  constructor(server: RedisServer, dataDir: string) {
    this.#server = server;
    this.#dataDir = dataDir;
  }

  get port(): number {
    return this.#port;
  }

  get url(): string {
    return `redis://127.0.0.1:${this.#port}`;
  }

  async start(): Promise<void> {
    this.#running = await startRedisServer({
      server: this.#server,
      dataDir: this.#dataDir,
      persistence: 'always',
      listen: { port: this.#port },
    });
    this.#port = Number(new URL(this.#running.url).port);
  }

  /** Ends it as a crash would. */
  async kill(): Promise<void> {
    this.#signal('SIGKILL');
    await this.#running?.exited;
    this.#running = undefined;
  }

  /** Copies its AOF, which it must not rewrite meanwhile, in place of the copy before. */
  async backUp(): Promise<void> {
    await rm(this.#backup, { recursive: true, force: true });
    await cp(this.#appendOnly, this.#backup, { recursive: true });
  }

  /** Brings back what {@link backUp} has copied, while it is killed. */
  async restore(): Promise<void> {
    await rm(this.#appendOnly, { recursive: true, force: true });
    await cp(this.#backup, this.#appendOnly, { recursive: true });
  }

  get #appendOnly(): string {
    return join(this.#dataDir, 'appendonlydir');
  }

  get #backup(): string {
    return `${this.#dataDir}-backup`;
  }

  /** Lets it accept connections and answer nothing. */
  freeze(): void {
    this.#signal('SIGSTOP');
  }

  thaw(): void {
    this.#signal('SIGCONT');
  }

  async stop(): Promise<void> {
    this.thaw();
    await this.#running?.stop();
    this.#running = undefined;
  }

  /** Ends it at once, when there is no time left to wait for anything. */
  abandon(): void {
    this.#signal('SIGKILL');
  }

  #signal(signal: NodeJS.Signals): void {
    if (this.#running) process.kill(this.#running.pid, signal);
  }
}
