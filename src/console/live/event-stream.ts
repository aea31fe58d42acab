import { PassThrough, type Readable } from 'node:stream';

/**
 * Headers of server-sent events. Proxies neither keep nor change nor hold them back: `X-Accel-Buffering` is nginx's word for
 * it, and others know it, too.
 */
export const EVENT_STREAM_HEADERS = {
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-store, no-transform',
  'x-accel-buffering': 'no',
} as const;

/** What may wait for a slow reader, in bytes, before its stream ends. The browser comes back for the rest. */
const MAX_WAITING_BYTES = 512 * 1024;

/** When the browser comes back after the end of a stream, in milliseconds. */
const RECONNECT_MS = 1000;

/** One event in the form of the wire, which several streams may send. */
export function encodeEvent(name: string, data: unknown, id?: string): Buffer {
  const idLine = id === undefined ? '' : `id: ${id}\n`;
  return Buffer.from(`${idLine}event: ${name}\ndata: ${JSON.stringify(data)}\n\n`);
}

/** A body of server-sent events (HTML Living Standard, section 9.2) for one reader. */
export class EventStream {
  readonly #body = new PassThrough();

  constructor() {
    this.#body.write(`retry: ${RECONNECT_MS}\n\n`);
  }

  /** To be sent as the body of the response. */
  get body(): Readable {
    return this.#body;
  }

  get isOpen(): boolean {
    return this.#body.writable;
  }

  /** Calls back once, when the reader is gone or the stream has ended. */
  onClose(listener: () => void): void {
    this.#body.once('close', listener);
  }

  /** Sends an event, unless the stream has ended. A reader who is too slow gets what waits already, and then the end. */
  send(event: Buffer): void {
    if (!this.isOpen) return;
    this.#body.write(event);
    if (this.#body.writableLength > MAX_WAITING_BYTES) this.end();
  }

  /** Resolves when the reader has taken most of what was sent, or is gone. */
  async drained(): Promise<void> {
    if (!this.isOpen || !this.#body.writableNeedDrain) return;
    await new Promise<void>((resolve) => {
      const done = () => {
        this.#body.off('drain', done);
        this.#body.off('close', done);
        resolve();
      };
      this.#body.once('drain', done);
      this.#body.once('close', done);
    });
  }

  /** A line that means nothing, so that proxies see that the connection lives. */
  beat(): void {
    if (this.isOpen) this.#body.write(':\n\n');
  }

  /** Idempotent. */
  end(): void {
    if (this.isOpen) this.#body.end();
  }
}
