import fc from 'fast-check';
import { withDeadline } from '../../src/core/deadline.ts';
import { UNCONFIRMED_MESSAGE } from '../../src/core/errors.ts';
import { schemaChecker } from '../support/openapi.ts';
import { Judge, parseAnswer, type Question, type ReceivedAnswer } from './answers.ts';
import { type Exchange, exchanges } from './requests.ts';
import type { Service, Target } from './target.ts';
import { MAX_FILLER_BYTES, Wire } from './wire.ts';

/** What was sent and answered so far. */
export interface Tally {
  requests: number;
  /** Answers by their status. */
  statuses: Map<number, number>;
  /** Runs that were accepted, replays not counted. */
  accepted: number;
  /** Answers that leave open whether there is a run, because Redis was too slow, and requests whose clients hung up. */
  unconfirmed: number;
  /** Clients that hung up, and clients that closed their side and waited for their answers. */
  resets: number;
  finishes: number;
  /** The shrunk counterexample, and what was wrong with its answer. */
  failure?: string;
}

export interface RoundOptions {
  seed: number;
  /** Clients at the same time, with a connection to each service. */
  clients: number;
  exchangesPerClient: number;
}

/** What is neither answered nor over after this time, in milliseconds, is a failure. */
const EXCHANGE_TIMEOUT_MS = 30_000;

/** A counterexample is shrunk for this long, in milliseconds: what has no answer takes its time at each try. */
const SHRINK_MS = 20_000;

/** A connection, and what was sent over it last: that may be what broke it. */
interface UsedWire {
  wire: Wire;
  before: Exchange | undefined;
}

/** Sends generated exchanges to a target and judges every answer. */
export class Fuzzer {
  readonly tally: Tally = {
    requests: 0,
    statuses: new Map(),
    accepted: 0,
    unconfirmed: 0,
    resets: 0,
    finishes: 0,
  };
  readonly #target: Target;
  readonly #judge: Judge;
  readonly #exchanges: fc.Arbitrary<Exchange>;
  /** The client that has found a counterexample: it shrinks it until then, and all others stop. */
  #found: { seed: number; shrinksUntil: number } | undefined;

  static async create(target: Target): Promise<Fuzzer> {
    return new Fuzzer(target, new Judge(target.document, await schemaChecker(target.document)));
  }

  private constructor(target: Target, judge: Judge) {
    this.#target = target;
    this.#judge = judge;
    this.#exchanges = exchanges(target);
  }

  /** When this returns, every request was answered, or the first failure is in the tally. */
  async round({ seed, clients, exchangesPerClient }: RoundOptions): Promise<void> {
    const seeds = Array.from({ length: clients }, (_, index) => (seed + index) | 0);
    await Promise.all(seeds.map((each) => this.#client(each, exchangesPerClient)));
  }

  async #client(seed: number, numRuns: number): Promise<void> {
    const wires = new Map<Service, UsedWire>();
    const property = fc.asyncProperty(this.#exchanges, async (exchange) => {
      const found = this.#found;
      if (found && (found.seed !== seed || performance.now() > found.shrinksUntil)) return;
      try {
        await withDeadline(this.#exchange(exchange, wires), EXCHANGE_TIMEOUT_MS);
      } catch (error) {
        this.#found ??= { seed, shrinksUntil: performance.now() + SHRINK_MS };
        throw explained(error, dropWire(exchange, wires));
      }
    });
    const { failed, counterexample, errorInstance, counterexamplePath } = await fc.check(property, {
      seed,
      numRuns,
    });
    for (const { wire } of wires.values()) wire.close();
    if (!failed || this.#found?.seed !== seed) return;
    const [exchange] = counterexample ?? [];
    const sent = exchange ? printable(exchange) : 'nothing';
    this.tally.failure = `${errorInstance}\nseed ${seed}, path ${counterexamplePath}\n${sent}`;
  }

  async #exchange(exchange: Exchange, wires: Map<Service, UsedWire>): Promise<void> {
    const { service, bytes, requests, isDelimited, ending } = exchange;
    const port = this.#target.ports[service];
    this.tally.requests += requests.length;
    // Node's parser keeps to itself what is malformed in the body of such a request: 408 is its answer, once its time is over.
    const isAnsweredLate = !isDelimited && /\r\nupgrade:/i.test(bytes.toString('latin1'));
    if (ending?.type === 'reset' || isAnsweredLate) {
      this.tally.resets += 1;
      this.tally.unconfirmed += requests.length;
      await new Wire(port).reset(bytes, ending?.type === 'reset' ? ending.afterMs : 0);
      return;
    }
    if (ending) return this.#finish(exchange);
    if (!isDelimited) return this.#provoke(exchange);
    let used = wires.get(service);
    if (!used?.wire.isUsable) {
      used?.wire.close();
      used = { wire: new Wire(port), before: undefined };
      wires.set(service, used);
    }
    const answers = await used.wire.ask(
      bytes,
      requests.map(({ method }) => method),
    );
    answers.forEach((answer, index) => {
      const request = requests[index];
      this.#take(answer, { service, ...(request && { request }) });
    });
    used.before = exchange;
  }

  /** Whatever HTTP leaves open, there is an answer, and no reset before it. */
  async #provoke(exchange: Exchange, isPatient = false): Promise<void> {
    const { service, bytes, requests } = exchange;
    const wire = new Wire(this.#target.ports[service]);
    const answers = [...split(await wire.provoke(bytes, isPatient), bytes.includes('HEAD '))];
    // A busy machine may have accepted one of them without its answer having come yet.
    if (wire.hasGivenUp || wire.wasReset) this.tally.unconfirmed += requests.length;
    answers.forEach((answer, index) => {
      // Only the first answer is to something known: a request may be cut in two.
      this.#take(answer, index === 0 ? questionOf(exchange, bytes) : { service });
    });
    if (wire.wasReset && answers.length === 0 && !isPatient) return this.#provoke(exchange, true);
    // The last answer of a connection waits for the whole body, or for the end of the time that it may take.
    if (answers.length === 0 && wire.hasGivenUp && announcedBytes(bytes) > MAX_FILLER_BYTES) return;
    if (answers.length === 0) throw new Error(`${wire.wasReset ? 'reset' : 'closed'} without an answer`);
    // Only filler behind the last whole request of a connection is left unread. What is no request has no id.
    if (isPatient && !answers.at(-1)?.headers.has('x-request-id')) throw new Error('reset without an answer');
  }

  /** Whatever was sent to its end is answered, although its client has closed its side. */
  async #finish({ service, bytes, requests, isDelimited }: Exchange): Promise<void> {
    this.tally.finishes += 1;
    const received = await new Wire(this.#target.ports[service]).finish(bytes);
    const answers = [...split(received, bytes.includes('HEAD '))];
    for (const answer of answers) this.#take(answer, { service });
    const isLast = answers.at(-1)?.headers.get('connection') === 'close';
    const expected = isDelimited && !isLast ? requests.length : 1;
    if (answers.length < expected) throw new Error(`${answers.length} answers to ${expected} requests`);
  }

  #take(answer: ReceivedAnswer, question: Question): void {
    const { statuses } = this.tally;
    statuses.set(answer.statusCode, (statuses.get(answer.statusCode) ?? 0) + 1);
    if (answer.statusCode === 202 && !answer.headers.has('idempotency-replayed')) this.tally.accepted += 1;
    if (answer.body?.includes(UNCONFIRMED_MESSAGE)) this.tally.unconfirmed += 1;
    this.#judge.judge(answer, question);
  }
}

/** What follows on a connection could not be told from what was wrong. Returns what was sent over it before. */
function dropWire({ isDelimited, service }: Exchange, wires: Map<Service, UsedWire>): Exchange | undefined {
  const used = isDelimited ? wires.get(service) : undefined;
  used?.wire.close();
  if (used) wires.delete(service);
  return used?.before;
}

function explained(error: unknown, before: Exchange | undefined): Error {
  const message = error instanceof Error ? error.message : String(error);
  const context = before ? `\nafter, on the same connection: ${printable(before)}` : '';
  return new Error(`${message}${context}`, { cause: error });
}

/** How long the first body that has a length is to be. */
function announcedBytes(bytes: Buffer): number {
  return Number(/\r\ncontent-length: *(\d+)\r\n/i.exec(bytes.toString('latin1'))?.[1] ?? 0);
}

/** The request line as it went out, where it still is one; its answer may be one to broken HTTP all the same. */
function questionOf({ service }: Exchange, bytes: Buffer): Question {
  const line = bytes.toString('latin1', 0, 10_000).replace(/^(\r\n)+/, '');
  const [, method, target] = /^([A-Z-]+) (\S+) HTTP\/\d\.\d\r\n/.exec(line) ?? [];
  return { service, ...(method && target && { request: { method, target } }) };
}

/** All answers of a connection that has ended; it is not known which of them answers what. */
function* split(received: Buffer, mayAnswerHead: boolean): Generator<ReceivedAnswer> {
  for (let offset = 0; offset < received.length; ) {
    const head = mayAnswerHead ? parseAnswer(received, offset, false) : undefined;
    const isBodiless =
      head && (head.end === received.length || received.indexOf('HTTP/1.1 ', head.end) === head.end);
    const parsed = isBodiless ? head : parseAnswer(received, offset, true);
    if (!parsed)
      throw new Error(`an answer is cut off: ${JSON.stringify(received.toString('latin1', offset))}`);
    yield parsed.answer;
    offset = parsed.end;
  }
}

/** More would be too much for a regular expression, and for a reader. */
const PRINTED_BYTES = 50_000;

/** What was sent, with everything that cannot be printed escaped, and what was repeated shortened. */
function printable({ service, bytes, isDelimited, ending }: Exchange): string {
  const text = JSON.stringify(bytes.toString('latin1', 0, PRINTED_BYTES)).replace(
    /[\x7f-\xff]/g,
    (character) => {
      return `\\x${character.charCodeAt(0).toString(16)}`;
    },
  );
  const short = text.replace(
    /(.{1,4})\1{40,}/g,
    (all, unit: string) => `${unit}<×${all.length / unit.length}>`,
  );
  const rest = bytes.length > PRINTED_BYTES ? ` and ${bytes.length - PRINTED_BYTES} bytes more` : '';
  const then = ending?.type ?? (isDelimited ? 'the next request' : 'filler');
  return `sent to ${service}, followed by ${then}: ${short}${rest}`;
}
