import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseAnswer, type ReceivedAnswer } from './answers.ts';

/** A request without an answer after this time, in milliseconds, is a failure. */
const ANSWER_TIMEOUT_MS = 10_000;

/** When nothing came back for this long, in milliseconds, the server waits for more bytes, and gets them. */
const QUIET_MS = 100;

/** Who is patient waits so long before that, in milliseconds: a busy machine takes its time. */
const PATIENCE_MS = 3000;

/** No HTTP in any place where a request could go on: it ends headers and chunks with an error, and fills bodies. */
const FILLER = Buffer.alloc(20_000, 'x');

/** More than the service reads of a body that is over its limit, in bytes. */
export const MAX_FILLER_BYTES = 9_000_000;

/** One connection to a server, over which nothing is sent that was not asked for. */
export class Wire {
  readonly #socket: Socket;
  #received = Buffer.alloc(0);
  #hasEnded = false;
  #wasReset = false;
  #hasGivenUp = false;
  #wake: () => void = () => undefined;

  constructor(port: number) {
    this.#socket = connect({ port, host: '127.0.0.1', noDelay: true });
    this.#socket.on('data', (chunk) => {
      this.#received = this.#received.length === 0 ? chunk : Buffer.concat([this.#received, chunk]);
      this.#wake();
    });
    // A reset is an end; what was received before it counts.
    this.#socket.on('error', () => {
      this.#wasReset = true;
    });
    for (const event of ['end', 'close']) {
      this.#socket.on(event, () => {
        this.#hasEnded = true;
        this.#wake();
      });
    }
  }

  /** Whether the server closed the connection over bytes it had not read, which costs a client that is sending the answer. */
  get wasReset(): boolean {
    return this.#wasReset;
  }

  /** Whether this side has closed the connection although answers could still come. */
  get hasGivenUp(): boolean {
    return this.#hasGivenUp;
  }

  get isUsable(): boolean {
    return !this.#hasEnded && this.#received.length === 0;
  }

  close(): void {
    this.#socket.destroy();
  }

  /**
   * Sends requests and reads one answer to each, fewer when the server says that it closes the connection.
   *
   * @throws when the connection ends, or the time is over, without an answer
   */
  async ask(bytes: Buffer, methods: string[]): Promise<ReceivedAnswer[]> {
    this.#socket.write(bytes);
    const answers: ReceivedAnswer[] = [];
    const timer = setTimeout(() => this.#socket.destroy(), ANSWER_TIMEOUT_MS);
    try {
      for (const method of methods) {
        const answer = await this.#next(method !== 'HEAD');
        answers.push(answer);
        if (answer.headers.get('connection') === 'close') {
          this.close();
          this.#hasEnded = true;
          break;
        }
      }
    } finally {
      clearTimeout(timer);
    }
    return answers;
  }

  /**
   * Sends bytes, and filler until the server has closed the connection. Returns all that it said.
   *
   * @param isPatient whether filler is sent only when the server has said nothing to the bytes alone
   */
  async provoke(bytes: Buffer, isPatient = false): Promise<Buffer> {
    this.#socket.write(isPatient ? bytes : Buffer.concat([bytes, FILLER]));
    if (isPatient) await this.#somethingWithin(PATIENCE_MS);
    let sent = 0;
    for (let quiet = 0; !this.#hasEnded && quiet < ANSWER_TIMEOUT_MS / QUIET_MS; ) {
      if (await this.#somethingWithin(QUIET_MS)) continue;
      quiet += 1;
      // A request that was refused unread may have announced more than anybody sends.
      if (sent > MAX_FILLER_BYTES && this.#received.length > 0) break;
      if (sent > MAX_FILLER_BYTES || this.#socket.writableLength > 0) continue;
      const filler = Buffer.concat(Array.from({ length: 2 ** Math.min(quiet, 7) }, () => FILLER));
      sent += filler.length;
      this.#socket.write(filler);
    }
    this.#hasGivenUp = !this.#hasEnded;
    this.close();
    return this.#received;
  }

  /**
   * Sends bytes, closes this side and waits until the server has closed the other one. Returns all that it said.
   *
   * @throws when it does not
   */
  async finish(bytes: Buffer): Promise<Buffer> {
    this.#socket.end(bytes);
    const timer = setTimeout(() => this.close(), ANSWER_TIMEOUT_MS);
    while (!this.#hasEnded) await this.#somethingWithin(QUIET_MS);
    clearTimeout(timer);
    // Whoever closes a connection itself never hears of the other side's end.
    if (!this.#socket.readableEnded) throw new Error(this.#wasReset ? 'reset' : 'not closed');
    return this.#received;
  }

  /** Sends bytes, and then that nothing is read any more. */
  async reset(bytes: Buffer, afterMs: number): Promise<void> {
    await new Promise<void>((resolve) => this.#socket.write(bytes, () => resolve()));
    if (afterMs > 0) await sleep(afterMs);
    this.#socket.resetAndDestroy();
  }

  async #next(hasBody: boolean): Promise<ReceivedAnswer> {
    for (;;) {
      const parsed = parseAnswer(this.#received, 0, hasBody);
      if (parsed) {
        this.#received = this.#received.subarray(parsed.end);
        return parsed.answer;
      }
      if (this.#hasEnded) throw new Error(`no answer, but ${JSON.stringify(this.#received.toString())}`);
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  #somethingWithin(ms: number): Promise<boolean> {
    return new Promise((resolve) => {
      const timer = setTimeout(() => resolve(false), ms);
      this.#wake = () => {
        clearTimeout(timer);
        resolve(true);
      };
    });
  }
}
