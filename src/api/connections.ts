import type { Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { watchForRtsp } from './rtsp.ts';

/** A peer that goes on sending after its connection was closed is read for this long, in milliseconds. Then it is cut off. */
const LINGER_MS = 10_000;

/** One connection, and what has become of the requests that came over it. */
export class Connection {
  readonly socket: Socket;
  /** Whether an answer has said that it is the last one: no request behind it is to be run. */
  isEnding = false;
  /** Whether nothing that still comes is read as a request. */
  isClosing = false;
  /** Responses that are not over, oldest first. No Set: each table that one outgrows lives until V8's next full collection. */
  readonly #open: ServerResponse[] = [];
  /** The response to the request that came last. */
  #latest: ServerResponse | undefined;
  /** How many bytes had come when the latest request was done with: any more of them begin another one. */
  #bytesDone = 0;

  constructor(socket: Socket) {
    this.socket = socket;
    // Node forgets responses that wait for their turn when the peer hangs up.
    socket.once('close', () => {
      for (const response of [...this.#open]) response.emit('close');
    });
  }

  /** Takes note of a request, by the response to it. */
  add(response: ServerResponse): void {
    this.#open.push(response);
    this.#latest = response;
    const { req } = response;
    const done = () => {
      this.#bytesDone = this.socket.bytesRead;
    };
    response.once('close', () => {
      this.#open.splice(this.#open.indexOf(response), 1);
      // It may have been answered before all of it had come.
      if (!req.complete) req.once('close', done);
      else if (this.#latest === response) this.#latest = undefined;
      done();
    });
  }

  /** The response to a request whose body has not come to its end. */
  get unread(): ServerResponse | undefined {
    return this.#latest?.req.complete === false ? this.#latest : undefined;
  }

  /** The response to the latest request that has come to its end, until it is over. */
  get owed(): ServerResponse | undefined {
    return this.#open.findLast(({ req }) => req.complete);
  }

  /** Whether a request has begun to come and has not come to its end. */
  get isMidRequest(): boolean {
    return this.unread !== undefined || (this.#open.length === 0 && this.socket.bytesRead > this.#bytesDone);
  }

  /** Takes what still comes away from Node's HTTP parser, and throws it away. */
  discardInput(): void {
    this.isClosing = true;
    this.socket
      .removeAllListeners('data')
      .on('data', () => undefined)
      .on('error', () => this.socket.destroy())
      .resume();
  }

  /**
   * Says the last words and closes this side. What still comes is read for a while: to close a connection over unread bytes
   * is to reset it, and that can cost the peer the answer (RFC 9112, section 9.6).
   */
  end(lastWords = ''): void {
    const { socket } = this;
    socket.end(lastWords);
    const linger = setTimeout(() => socket.destroy(), LINGER_MS);
    socket.once('close', () => clearTimeout(linger));
  }
}

/** The open connections of a server. */
export class Connections implements Iterable<Connection> {
  readonly #open = new Map<Socket, Connection>();

  /** Call it before the server listens. */
  attach(server: Server): void {
    server.on('connection', (socket: Socket) => {
      // Node remembers the address that it is asked for. Without one the client has hung up, and there is nobody to answer.
      if (socket.remoteAddress === undefined) {
        socket.destroy();
        return;
      }
      const connection = new Connection(socket);
      watchForRtsp(socket, () => {
        connection.isEnding = true;
      });
      this.#open.set(socket, connection);
      socket.once('close', () => this.#open.delete(socket));
    });
    for (const event of ['request', 'checkExpectation']) {
      // Before anything answers it.
      server.prependListener(event, ({ socket }, response: ServerResponse) => this.of(socket)?.add(response));
    }
  }

  of(socket: Socket): Connection | undefined {
    return this.#open.get(socket);
  }

  [Symbol.iterator](): Iterator<Connection> {
    return this.#open.values();
  }
}
