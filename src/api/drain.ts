import type { Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

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
 * can be in HTTP/1.1 (RFC 9112, section 9.5).
 */
export class Drain {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #latestResponses = new WeakMap<Socket, ServerResponse>();
  readonly #seen = new WeakMap<Socket, { bytesRead: number; at: number }>();

  /** Call it before the server listens. */
  constructor(server: Server) {
    this.#server = server;
    server.on('connection', (socket: Socket) => {
      this.#sockets.add(socket);
      socket.once('close', () => this.#sockets.delete(socket));
    });
    server.on('request', (request, response) => this.#latestResponses.set(request.socket, response));
  }

  /**
   * From now on closes connections once they are idle. Call it before the server is closed; it lasts until the returned
   * function is called.
   *
   * @param graceMs milliseconds until whatever is left is cut; a short one shortens what counts as idle
   */
  start(graceMs: number): () => void {
    // The server's `close()` would call it.
    this.#server.closeIdleConnections = () => {};
    const idleMs = Math.min(IDLE_MS, graceMs / 2);
    // After the event loop's poll phase, so that nothing that has already arrived is still unread.
    const timer = setInterval(() => setImmediate(() => this.#closeIdle(idleMs)), SWEEP_MS);
    this.#closeIdle(idleMs);
    return () => clearInterval(timer);
  }

  #closeIdle(idleMs: number): void {
    const now = performance.now();
    for (const socket of this.#sockets) {
      const { bytesRead } = socket;
      const seen = this.#seen.get(socket);
      const response = this.#latestResponses.get(socket);
      const isBusy = (response && !response.closed) || bytesRead !== seen?.bytesRead;
      if (isBusy) this.#seen.set(socket, { bytesRead, at: now });
      else if (now - seen.at >= idleMs) socket.destroy();
    }
  }
}
