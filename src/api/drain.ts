import type { Server } from 'node:http';
import type { Connection, Connections } from './connections.ts';

/** A connection on which nothing has moved for this long during shutdown is closed, in milliseconds. */
const IDLE_MS = 1000;

/** How often connections are looked at during shutdown, in milliseconds. */
const SWEEP_MS = 50;

/**
 * Closes the connections of a server that shuts down without cutting one in use.
 *
 * Node's own `close()` destroys every connection that is between two requests at that moment, although the next request
 * of a busy client is already on its way: that client sees a reset. Here a busy client learns from the
 * `connection: close` of its next answer that it is to go elsewhere, and only a connection that stays idle is closed.
 * A request sent at the very moment in which its connection has been idle for too long is lost to that, as it always
 * can be in HTTP/1.1 (RFC 9112, section 9.5). A client that stalls within a request is told so before.
 */
export class Drain {
  readonly #server: Server;
  readonly #connections: Connections;
  readonly #seen = new Map<Connection, { bytesRead: number; at: number }>();

  constructor(server: Server, connections: Connections) {
    this.#server = server;
    this.#connections = connections;
  }

  /**
   * From now on closes connections once they are idle. Call it before the server is closed; it lasts until the returned
   * function is called.
   *
   * @param graceMs milliseconds until whatever is left is cut; a short one shortens what counts as idle
   */
  start(graceMs: number): () => void {
    const idleMs = Math.min(IDLE_MS, graceMs / 2);
    // A request that is not whole by then would be cut without an answer.
    const lastCallAt = performance.now() + graceMs - idleMs;
    // After the event loop's poll phase, so that nothing that has already arrived is still unread.
    const timer = setInterval(() => setImmediate(() => this.#sweep(idleMs, lastCallAt)), SWEEP_MS);
    this.#sweep(idleMs, lastCallAt);
    return () => clearInterval(timer);
  }

  #sweep(idleMs: number, lastCallAt: number): void {
    const now = performance.now();
    for (const connection of this.#connections) {
      const { socket, isClosing, isMidRequest, owed } = connection;
      const { bytesRead } = socket;
      const seen = this.#seen.get(connection);
      const isBusy = owed !== undefined || bytesRead !== seen?.bytesRead;
      const since = isBusy ? now : seen.at;
      const isIdle = now - since >= idleMs;
      if (isMidRequest && !isClosing && (isIdle || now >= lastCallAt)) {
        this.#timeOut(connection);
        this.#seen.set(connection, { bytesRead, at: now });
      } else if (isIdle) socket.destroy();
      else this.#seen.set(connection, { bytesRead, at: since });
    }
  }

  /** What Node itself does about a request that does not come to its end, as long as its server is not being closed. */
  #timeOut({ socket }: Connection): void {
    const error = Object.assign(new Error('the server shuts down'), { code: 'ERR_HTTP_REQUEST_TIMEOUT' });
    this.#server.emit('clientError', error, socket);
  }
}
