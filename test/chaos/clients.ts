import { Agent, request as requestByHttp } from 'node:http';
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { mintApiKey } from '../../src/core/api-key.ts';
import { UNCONFIRMED_MESSAGE } from '../../src/core/errors.ts';
import type { TriggeredAutomation } from './automations.ts';
import type { Chance } from './chance.ts';
import { type Answer, type History, type Operation, promisedRun, type SentRequest } from './history.ts';
import type { Observer } from './observer.ts';

const CLIENTS = 24;

/** A client that gets no answer within this time gives up, in milliseconds. */
const PATIENCE_MS = 10_000;

/** The share of the operations that carry an idempotency key, and of those what their clients do with it. */
const KEYED_SHARE = 0.4;
const TWICE_AT_ONCE_SHARE = 0.15;
const REPLAYED_SHARE = 0.15;

/** A client with a key repeats its request until this much time has passed, in milliseconds. */
const REPEAT_MS = 15_000;

/** An automation with this many open runs is not triggered, so that one blocked lane does not grow without end. */
const OPEN_RUNS_LIMIT = 150;

export interface Api {
  name: string;
  /** Origin of the latest start. */
  url: string;
}

export interface ClientsOptions {
  history: History;
  observer: Observer;
  chance: Chance;
  automations: ReadonlyMap<string, TriggeredAutomation>;
  /** In the order of the round robin. */
  apis: readonly Api[];
  /** Operations a second while nothing is broken. */
  rate: number;
  /** What the operations of this moment are booked under. */
  scenario(): string;
}

/** Callers who trigger automations through one API process after the other, and behave as good callers do. */
export class Clients {
  readonly #options: ClientsOptions;
  readonly #agent = new Agent({ keepAlive: true });
  readonly #triggerable: TriggeredAutomation[];
  #next = 0;
  #isClosed = false;
  #work: Promise<unknown> | undefined;

  constructor(options: ClientsOptions) {
    this.#options = options;
    this.#triggerable = [...options.automations.values()].filter(({ weight }) => weight > 0);
  }

  start(): void {
    this.#work = Promise.all(Array.from({ length: CLIENTS }, () => this.#client()));
  }

  /** Begins nothing new, and waits for what has begun. Idempotent. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#work;
    this.#agent.destroy();
  }

  /** Triggers one automation, with an idempotency key, until that is accepted or takes too long. */
  async trigger(slug: string): Promise<string | undefined> {
    const automation = this.#options.automations.get(slug);
    if (!automation) throw new Error(`there is no automation ${slug}`);
    const { history, scenario } = this.#options;
    const operation = history.newOperation(slug, scenario(), `key of ${history.operations.length + 1}`);
    await this.#repeat(operation, automation);
    return promisedRun(operation);
  }

  async #client(): Promise<void> {
    const { chance, rate } = this.#options;
    const longestPauseMs = (2 * CLIENTS * 1000) / rate;
    while (!this.#isClosed) {
      await sleep(chance.between(0, longestPauseMs));
      if (!this.#isClosed) await this.#operate();
    }
  }

  async #operate(): Promise<void> {
    const { chance, history, observer, scenario } = this.#options;
    const automation = chance.weighted(this.#triggerable);
    const { slug } = automation;
    if (observer.openOf(slug) > OPEN_RUNS_LIMIT) return;
    if (!chance.is(KEYED_SHARE)) {
      const operation = history.newOperation(slug, scenario());
      // Without a key only what was certainly not sent is sent again.
      for (let sends = 0; sends < this.#options.apis.length; sends += 1) {
        if ((await this.#send(operation, automation)).kind !== 'unsent') return;
      }
      return;
    }
    const operation = history.newOperation(slug, scenario(), `key of ${history.operations.length + 1}`);
    if (chance.is(TWICE_AT_ONCE_SHARE)) {
      await Promise.all([this.#send(operation, automation), this.#send(operation, automation)]);
    }
    await this.#repeat(operation, automation);
    if (chance.is(REPLAYED_SHARE)) {
      await sleep(chance.between(0, 300));
      await this.#send(operation, automation);
    }
  }

  async #repeat(operation: Operation, automation: TriggeredAutomation): Promise<void> {
    const endsAt = Date.now() + REPEAT_MS;
    while (promisedRun(operation) === undefined && Date.now() < endsAt) {
      const { kind } = await this.#send(operation, automation);
      if (kind === 'unexpected') return;
      if (kind !== 'accepted') await sleep(this.#options.chance.between(50, 300));
    }
  }

  async #send(operation: Operation, { slug, apiKey }: TriggeredAutomation): Promise<Answer> {
    const { apis, history, observer } = this.#options;
    this.#next += 1;
    const api = apis[this.#next % apis.length];
    if (!api) throw new Error('there is no API process');
    const request = history.newRequest(operation, api.name);
    const answer = await this.#exchange(
      `${api.url}/orc/api/automation-triggers/${slug}`,
      operation,
      request,
      {
        'x-api-key': apiKey,
        'x-request-id': request.id,
        'content-type': 'application/json',
        ...(operation.idempotencyKey !== undefined && { 'idempotency-key': operation.idempotencyKey }),
      },
    );
    history.answered(request, answer);
    if (answer.kind === 'accepted') observer.follow(answer.runId, slug);
    return answer;
  }

  #exchange(
    url: string,
    { payload }: Operation,
    { id }: SentRequest,
    headers: Record<string, string>,
  ): Promise<Answer> {
    return new Promise((resolve) => {
      const sending = requestByHttp(url, { method: 'POST', agent: this.#agent, headers }, (response) => {
        let body = '';
        const fail = (error: Error) => resolve({ kind: 'uncertain', reason: error.message });
        response.setEncoding('utf8').on('data', (text) => {
          body += text;
        });
        response.once('error', fail);
        response.once('end', () => {
          const isReplay = response.headers['idempotency-replayed'] === 'true';
          const isOwn = response.headers['x-request-id'] === id;
          resolve(
            isOwn
              ? readAnswer(response.statusCode ?? 0, body, isReplay)
              : unexpected(0, 'the answer to another request'),
          );
        });
      });
      sending.setTimeout(PATIENCE_MS, () => sending.destroy(new Error(`no answer within ${PATIENCE_MS} ms`)));
      sending.once('error', (error: NodeJS.ErrnoException) =>
        resolve(
          error.code === 'ECONNREFUSED' ? { kind: 'unsent' } : { kind: 'uncertain', reason: error.message },
        ),
      );
      sending.end(payload);
    });
  }
}

/** Sends a request with a key that is well formed and nobody's, and resets the connection. */
export function hangUp(origin: string, slug: string, afterMs: number): Promise<void> {
  const head = `POST /orc/api/automation-triggers/${slug} HTTP/1.1\r\nHost: a\r\nX-Api-Key: ${mintApiKey()}\r\n\r\n`;
  return new Promise((resolve) => {
    const socket = connect(Number(new URL(origin).port), '127.0.0.1');
    // An API process may be away.
    socket.on('error', () => resolve());
    socket.once('close', () => resolve());
    socket.write(head, () => setTimeout(() => socket.resetAndDestroy(), afterMs));
  });
}

function unexpected(statusCode: number, body: string): Answer {
  return { kind: 'unexpected', statusCode, body };
}

function readAnswer(statusCode: number, text: string, isReplay: boolean): Answer {
  try {
    const { runId, status, error, message } = JSON.parse(text) as Record<string, string>;
    if (statusCode === 202 && runId && status) return { kind: 'accepted', runId, status, isReplay };
    if (statusCode !== 503 || !error) return unexpected(statusCode, text);
    if (message === UNCONFIRMED_MESSAGE) return { kind: 'uncertain', reason: `503 ${error}: not confirmed` };
    return { kind: 'refused', error };
  } catch {
    return unexpected(statusCode, text);
  }
}
