import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';

interface Link {
  client: Socket;
  upstream: Socket;
  /** Whether the next bytes from Redis are to be thrown away, and the connection cut. */
  dropsReply: boolean;
}

/** Stands between some processes and Redis on the loopback interface, and damages their connections when told to. */
export class RedisProxy {
  readonly #server: Server;
  readonly #links = new Set<Link>();
  /** Replies still to be dropped of commands that contain some words. */
  #drops: { words: string; left: number } | undefined;
  repliesDropped = 0;

  private constructor(redisPort: number) {
    this.#server = createServer((client) => {
      const link: Link = { client, upstream: connect(redisPort, '127.0.0.1'), dropsReply: false };
      this.#links.add(link);
      const cut = () => this.#cut(link);
      for (const socket of [client, link.upstream]) {
        socket.setNoDelay(true);
        socket.on('error', cut);
        socket.on('close', cut);
      }
      client.on('data', (data) => this.#forward(link, data));
      link.upstream.on('data', (data) => {
        if (link.dropsReply) {
          this.repliesDropped += 1;
          cut();
        } else client.write(data);
      });
    });
  }

  static async listen(redisPort: number): Promise<RedisProxy> {
    const proxy = new RedisProxy(redisPort);
    proxy.#server.listen(0, '127.0.0.1');
    await once(proxy.#server, 'listening');
    return proxy;
  }

  get url(): string {
    return `redis://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Cuts every connection. */
  cut(): void {
    for (const link of this.#links) this.#cut(link);
  }

  /** Lets the next commands that contain some words reach Redis, but not their replies back. */
  dropReplies(words: string, count: number): void {
    this.#drops = { words, left: count };
  }

  stopDropping(): void {
    this.#drops = undefined;
  }

  async close(): Promise<void> {
    this.cut();
    if (!this.#server.listening) return;
    this.#server.close();
    await once(this.#server, 'close');
  }

  #forward(link: Link, data: Buffer): void {
    if (this.#drops && this.#drops.left > 0 && !link.dropsReply && data.includes(this.#drops.words)) {
      this.#drops.left -= 1;
      link.dropsReply = true;
    }
    link.upstream.write(data);
  }

  #cut(link: Link): void {
    if (!this.#links.delete(link)) return;
    link.client.destroy();
    link.upstream.destroy();
  }
}
