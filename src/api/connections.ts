import type { Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { distrust } from './plugins/errors.ts';
import { watchForRtsp } from './rtsp.ts';

/**
 * A peer that goes on sending after its connection was closed is read for this long, and this much. Then it is cut off.
 * In milliseconds and bytes.
 */
const LINGER_MS = 10_000;
const LINGER_BYTES = 64 * 1024 * 1024;

/** Where a response keeps the connection that it belongs to, and what is to be done when it is over. */
const CONNECTION = Symbol('connection');
const OVER = Symbol('over');

/** @param hungUp whether the client did not wait for all of the response */
type OverListener = (hungUp: boolean) => void;

type TrackedResponse = ServerResponse & {
  [CONNECTION]?: Connection | undefined;
  [OVER]?: OverListener | undefined;
};

/** One connection, and what has become of the requests that came over it. */
export class Connection {
  readonly socket: Socket;
  /** Whether nothing that still comes is read as a request any more. */
  isClosing = false;
  /** The response to the request that came last, and to the one before it, until they are over. */
  #latest: ServerResponse | undefined;
  #previous: ServerResponse | undefined;
  /** Responses that wait until an earlier one is over. Node would forget them without a word when the peer hangs up. */
  readonly queued = new Set<TrackedResponse>();
  /** How many bytes had come when the latest request was done with: any more of them begin another one. */
  #bytesDone = 0;
  readonly #done = () => {
    this.#bytesDone = this.socket.bytesRead;
  };

  constructor(socket: Socket) {
    this.socket = socket;
    // Node calls it after the last response, and would close over whatever the peer is still sending.
    socket.destroySoon = () => this.end();
  }

  /** Takes note of a request, by the response to it. */
  began(response: ServerResponse): void {
    this.#previous = this.#latest;
    this.#latest = response;
  }

  /**
   * Takes note of a response's being over, and lets go of it. All that hangs on it would otherwise live until the
   * connection's next request, and every garbage collection until then would have to move it.
   */
  closed(response: ServerResponse): void {
    const { req } = response;
    if (response.writableFinished) {
      this.#done();
      // It was answered before all of it had come.
      if (!req.complete) req.once('close', this.#done);
    }
    if (this.queued.size > 0) this.queued.delete(response);
    if (!req.complete) return;
    if (this.#latest === response) this.#latest = undefined;
    if (this.#previous === response) this.#previous = undefined;
  }

  /** The response to a request whose body has not come to its end. */
  get unread(): ServerResponse | undefined {
    return this.#latest?.req.complete === false ? this.#latest : undefined;
  }

  /** The response to the latest request that has come to its end, until it is closed: it may close the connection. */
  get owed(): ServerResponse | undefined {
    const whole = this.unread ? this.#previous : this.#latest;
    return whole?.closed === false ? whole : undefined;
  }

  /** Whether a request has begun to come and has not come to its end. */
  get isMidRequest(): boolean {
    if (this.unread) return true;
    return this.#latest?.closed !== false && this.socket.bytesRead > this.#bytesDone;
  }

  /**
   * Reads what still comes and throws it away. To close a connection over unread bytes is to reset it, and that can cost
   * the peer the answer (RFC 9112, section 9.6).
   */
  discardInput(): void {
    if (this.isClosing) return;
    this.isClosing = true;
    const { socket } = this;
    let left = LINGER_BYTES;
    // Takes the bytes away from Node's HTTP parser.
    socket.removeAllListeners('data').on('data', (chunk: Buffer) => {
      left -= chunk.length;
      if (left < 0) socket.destroy();
    });
    socket.on('error', () => socket.destroy()).resume();
    // Node may have stopped it for a body that nobody reads, and would not know any more how to go on.
    socket._read(0);
    const linger = setTimeout(() => socket.destroy(), LINGER_MS);
    socket.once('close', () => clearTimeout(linger));
  }

  /** Closes this side after the last words, and the connection once the peer has closed its side. */
  end(lastWords = ''): void {
    this.discardInput();
    if (!this.socket.writableEnded) this.socket.end(lastWords);
  }
}

function tellOver(response: TrackedResponse, hungUp: boolean): void {
  const listener = response[OVER];
  if (!listener) return;
  response[OVER] = undefined;
  listener(hungUp);
}

/** The same listener for all responses, and only one: Node emits `close` right after `finish`, before anything else is read. */
function onClose(this: TrackedResponse): void {
  this[CONNECTION]?.closed(this);
  tellOver(this, !this.writableFinished);
}

/** The open connections of a server. */
export class Connections implements Iterable<Connection> {
  readonly #open = new Map<Socket, Connection>();

  /** Call it before the server listens. */
  attach(server: Server): void {
    // A client may close its side behind its last request, and still waits for the answer. Node has this option for it, which
    // its documentation leaves out; a connection that owes nothing is closed at once then.
    Object.assign(server, { httpAllowHalfOpen: true });
    server.on('connection', (socket: Socket) => {
      if (this.#open.has(socket)) return;
      // Node knows the address of a client that has hung up if it was asked for before. Without one there is nobody to answer.
      if (socket.remoteAddress === undefined) {
        socket.destroy();
        return;
      }
      const connection = new Connection(socket);
      this.#open.set(socket, connection);
      watchForRtsp(socket, () => distrust(socket));
      socket.once('close', () => {
        this.#open.delete(socket);
        for (const response of connection.queued) tellOver(response, true);
      });
    });
    for (const event of ['request', 'checkContinue', 'checkExpectation']) {
      server.on(event, ({ socket }, response: TrackedResponse) => {
        if (response[CONNECTION]) return;
        const connection = this.of(socket);
        connection?.began(response);
        response[CONNECTION] = connection;
        response.on('close', onClose);
      });
    }
  }

  of(socket: Socket): Connection | undefined {
    return this.#open.get(socket);
  }

  /**
   * Calls back once: when all of this response is on its way, or when the client has hung up before; at once if it has. A
   * listener of its own for each response, or Fastify's `onResponse`, would take longer.
   */
  whenOver(response: TrackedResponse, listener: OverListener): void {
    if (response.closed || response.req.socket.destroyed) {
      listener(true);
      return;
    }
    const connection = response[CONNECTION];
    if (!connection) {
      // Fastify's `inject`.
      response.once('finish', () => listener(false));
      return;
    }
    response[OVER] = listener;
    if (!response.socket) connection.queued.add(response);
  }

  [Symbol.iterator](): Iterator<Connection> {
    return this.#open.values();
  }
}
