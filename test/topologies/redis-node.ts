import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { Redis, type RedisOptions } from 'ioredis';
import { afterAll } from 'vitest';
import { findRedisServer, type RedisServer } from '../../src/local/find-redis-server.ts';
import { freePortWith } from '../support/free-ports.ts';

/** A cluster's nodes talk to each other on the port that is higher by this. */
const BUS_OFFSET = 10_000;

const running = new Set<RedisNode>();

afterAll(async () => {
  await Promise.all([...running].map((node) => node.kill()));
});

type Login = Pick<RedisOptions, 'username' | 'password' | 'tls'>;

export interface NodeOptions {
  /** Lines of its configuration file, besides what every one has. */
  config?: string[];
  /** How to log in to it, where that takes more than its port. */
  login?: Login;
  server?: RedisServer;
  /** `tls` listens for nothing else. */
  port?: 'plain' | 'tls';
}

/** One server of a topology: a Redis, a node of a cluster, or a Sentinel. */
export class RedisNode {
  readonly port: number;
  /** The path of its socket. */
  readonly socket: string;
  readonly #child: ChildProcess;
  readonly #directory: string;
  readonly #login: Login;

  private constructor(port: number, child: ChildProcess, directory: string, login: Login) {
    this.port = port;
    this.socket = join(directory, 'redis.sock');
    this.#child = child;
    this.#directory = directory;
    this.#login = login;
  }

  /** Starts a Redis that keeps everything on disk, and waits until it takes connections. */
  static async startRedis({ config = [], ...options }: NodeOptions = {}): Promise<RedisNode> {
    const durable = ['appendonly yes', 'appendfsync always', 'save ""', 'maxmemory-policy noeviction'];
    const quick = ['repl-diskless-sync yes', 'repl-diskless-sync-delay 0'];
    return RedisNode.#start({ ...options, config: [...durable, ...quick, ...config] }, []);
  }

  static async startSentinel(options: NodeOptions): Promise<RedisNode> {
    return RedisNode.#start(options, ['--sentinel']);
  }

  static async #start(options: NodeOptions, args: string[]): Promise<RedisNode> {
    const { server = await findRedisServer({ env: process.env, report: () => undefined }) } = options;
    const directory = await mkdtemp(join(tmpdir(), 'orc-node-'));
    const port = await freePortWith(BUS_OFFSET);
    const ports = options.port === 'tls' ? ['port 0', `tls-port ${port}`] : [`port ${port}`];
    const lines = [
      ...ports,
      'bind 127.0.0.1',
      `dir ${directory}`,
      `unixsocket ${join(directory, 'redis.sock')}`,
    ];
    const file = join(directory, 'redis.conf');
    await writeFile(file, `${[...lines, ...(options.config ?? [])].join('\n')}\n`);
    const child = spawn(server.command, [file, ...args], {
      env: server.env,
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const node = new RedisNode(port, child, directory, options.login ?? {});
    running.add(node);
    await node.#untilReady();
    return node;
  }

  async #untilReady(): Promise<void> {
    const { stdout } = this.#child;
    if (!stdout) throw new Error('no output');
    const lines: string[] = [];
    const ready = new Promise<void>((resolve, reject) => {
      createInterface({ input: stdout }).on('line', (line) => {
        lines.push(line);
        if (/Ready to accept connections|Sentinel ID is/.test(line)) resolve();
      });
      this.#child.once('exit', () => reject(new Error(`a server ended:\n${lines.join('\n')}`)));
    });
    await ready;
  }

  /** Sends one command over a connection of its own. Rejects when the server is away. */
  async command(name: string, ...args: (string | number)[]): Promise<unknown> {
    const client = new Redis({
      host: '127.0.0.1',
      port: this.port,
      retryStrategy: () => null,
      ...this.#login,
    });
    client.on('error', () => undefined);
    try {
      return await client.call(name, ...args);
    } finally {
      client.disconnect();
    }
  }

  /** Ends it as a crash would. Idempotent. */
  async kill(): Promise<void> {
    if (!running.delete(this)) return;
    const exited = once(this.#child, 'exit');
    if (this.#child.exitCode === null && this.#child.signalCode === null) {
      this.#child.kill('SIGKILL');
      await exited;
    }
    await rm(this.#directory, { recursive: true, force: true });
  }

  /** Lets it accept connections and answer nothing, as a machine does that the network has lost. */
  freeze(): void {
    this.#child.kill('SIGSTOP');
  }

  thaw(): void {
    this.#child.kill('SIGCONT');
  }
}
