import { ERRORS, type ErrorId } from '../../src/core/errors.ts';
import type { OpenApiDocument, OpenApiOperation, schemaChecker } from '../support/openapi.ts';
import { PAGE_TYPES } from './page-types.ts';
import type { Service } from './target.ts';

/** One answer as it came over the wire. */
export interface ReceivedAnswer {
  statusCode: number;
  headers: Map<string, string>;
  /** Absent in an answer to HEAD. */
  body?: string;
}

/** What an answer is an answer to, as far as that is known. */
export interface Question {
  service: Service;
  /** Absent where broken HTTP leaves it open. */
  request?: { method: string; target: string; requestId?: string };
}

/**
 * The first final answer in a stream, and where the next one begins; undefined while it is incomplete.
 *
 * @param hasBody false for the answer to HEAD
 * @throws when the bytes are no answer
 */
export function parseAnswer(
  bytes: Buffer,
  offset: number,
  hasBody: boolean,
): { answer: ReceivedAnswer; end: number } | undefined {
  const headEnd = bytes.indexOf('\r\n\r\n', offset);
  if (headEnd < 0) return undefined;
  const [statusLine = '', ...lines] = bytes.toString('latin1', offset, headEnd).split('\r\n');
  const statusCode = Number(/^HTTP\/1\.1 (\d{3}) [A-Z]/.exec(statusLine)?.[1]);
  if (Number.isNaN(statusCode)) throw new Error(`no answer, but ${JSON.stringify(statusLine)}`);
  const start = headEnd + 4;
  if (statusCode === 100) return parseAnswer(bytes, start, hasBody);
  const headers = new Map<string, string>();
  for (const line of lines) {
    const colon = line.indexOf(':');
    const name = line.slice(0, colon).toLowerCase();
    if (colon < 1 || headers.has(name)) throw new Error(`header ${JSON.stringify(line)}`);
    headers.set(name, line.slice(colon + 1).trim());
  }
  const length = Number(headers.get('content-length') ?? Number.NaN);
  if (!Number.isInteger(length)) throw new Error(`${statusCode} without Content-Length`);
  const end = start + (hasBody ? length : 0);
  if (bytes.length < end) return undefined;
  return {
    answer: { statusCode, headers, ...(hasBody && { body: bytes.toString('utf8', start, end) }) },
    end,
  };
}

/** Headers that an answer with this status has to carry (RFC 9110). */
const REQUIRED_HEADERS: Readonly<Record<number, [name: string, value: RegExp]>> = {
  308: ['location', /^\/[a-z]/],
  401: ['www-authenticate', /\S/],
  405: ['allow', /^[A-Z]+(, [A-Z]+)*$/],
  429: ['retry-after', /^[1-9]\d*$/],
  503: ['retry-after', /^[1-9]\d*$/],
};

/** Services that may answer 503, because they were made to. */
const UNAVAILABLE: readonly Service[] = ['full', 'away'];

interface Operation extends OpenApiOperation {
  method: string;
  path: RegExp;
}

/** Holds answers against the OpenAPI document. */
export class Judge {
  readonly #check: Awaited<ReturnType<typeof schemaChecker>>;
  readonly #operations: Operation[];

  constructor(document: OpenApiDocument, check: Awaited<ReturnType<typeof schemaChecker>>) {
    this.#check = check;
    this.#operations = Object.entries(document.paths).flatMap(([path, operations]) =>
      Object.entries(operations).map(([method, operation]) => ({
        ...operation,
        method: method.toUpperCase(),
        path: new RegExp(`^${path.replaceAll('.', '\\.').replace(/\{[^}]+\}/g, '[^/]*')}$`),
      })),
    );
  }

  /** @throws an error that says what about the answer is not as documented */
  judge(answer: ReceivedAnswer, { service, request }: Question): void {
    const { statusCode, headers } = answer;
    checkStatus(statusCode, service);
    const [name, value] = REQUIRED_HEADERS[statusCode] ?? [];
    if (name && !value?.test(headers.get(name) ?? '')) fail(answer, `header ${name}`);
    const requestId = request?.requestId;
    if (requestId !== undefined && (headers.get('x-request-id') ?? requestId) !== requestId) {
      fail(answer, 'the answer to another request');
    }
    if (statusCode === 200 && this.#isUndescribed(answer, request)) return;
    checkCaching(answer);
    if (statusCode === 308) return;
    checkError(answer);
    // Only pages have more than one form, and they are not in the document.
    if (statusCode === 406 && headers.get('vary') === 'Accept') return;
    const candidates = this.#candidates(request, statusCode);
    const problems = candidates.map((operation) => this.#problemWith(answer, operation));
    if (problems.every((problem) => problem !== undefined))
      fail(answer, problems.join('; ') || 'undocumented');
  }

  #isUndescribed(answer: ReceivedAnswer, request: Question['request']): boolean {
    const path = request && pathOf(request.target);
    const types = path === undefined ? [...PAGE_TYPES.values()].flat() : (PAGE_TYPES.get(path) ?? []);
    return types.includes(answer.headers.get('content-type') ?? '');
  }

  /** The operations whose answer it may be: an error that any request can meet is documented for each of them. */
  #candidates(request: Question['request'], statusCode: number): Operation[] {
    if (!request) return this.#operations;
    const path = pathOf(request.target);
    const matching = this.#operations.filter((operation) => operation.path.test(path));
    const reached = matching.filter(
      ({ method }) => method === request.method || isHeadOf(request.method, method),
    );
    if (reached.length > 0) return reached;
    return statusCode < 400 ? [] : this.#operations.filter((_, index) => index === 0);
  }

  #problemWith({ statusCode, headers, body }: ReceivedAnswer, operation: Operation) {
    const response = operation.responses[statusCode];
    if (!response) return `undocumented for ${operation.operationId}`;
    for (const [name, { schema }] of Object.entries(response.headers)) {
      const value = headers.get(name);
      const { enum: allowed } = schema as { enum?: string[] };
      if (value !== undefined && allowed && !allowed.includes(value)) return `header ${name}: ${value}`;
    }
    const [mediaType = '', parameters = ''] = headers.get('content-type')?.split(';') ?? [];
    const content = response.content[mediaType];
    if (!content || !/^( charset=utf-8)?$/.test(parameters)) return `content-type ${mediaType};${parameters}`;
    return body === undefined ? undefined : this.#check(content.schema.$ref, JSON.parse(body));
  }
}

function checkStatus(statusCode: number, service: Service): void {
  const isProvoked = statusCode === 503 && UNAVAILABLE.includes(service);
  if (statusCode >= 500 && statusCode !== 501 && !isProvoked)
    throw new Error(`${statusCode} was not provoked`);
}

function checkCaching(answer: ReceivedAnswer): void {
  const expected = answer.statusCode === 308 ? 'no-cache' : 'no-store';
  if (answer.headers.get('cache-control') !== expected) fail(answer, 'header cache-control');
}

function checkError(answer: ReceivedAnswer): void {
  if (answer.statusCode < 400 || answer.body === undefined) return;
  const body = JSON.parse(answer.body) as { statusCode: number; error: ErrorId; hint: string };
  if (body.statusCode !== answer.statusCode) fail(answer, 'statusCode differs from the status');
  if (ERRORS[body.error]?.statusCode !== answer.statusCode) fail(answer, 'error is none of this status');
  if (!body.hint) fail(answer, 'no hint');
}

function fail({ statusCode, headers, body }: ReceivedAnswer, problem: string): never {
  const fields = JSON.stringify(Object.fromEntries(headers));
  throw new Error(`${statusCode}: ${problem}\n  ${fields}\n  ${body?.slice(0, 500) ?? ''}`);
}

function isHeadOf(method: string, documented: string): boolean {
  return method === 'HEAD' && documented === 'GET';
}

/** The path of a request's target, which may be a whole URL, decoded as far as that is possible. */
function pathOf(target: string): string {
  const path = target.replace(/^https?:\/\/[^/?#]*/i, '').split(/[?#;]/, 1)[0] || '/';
  try {
    return decodeURI(path);
  } catch {
    return path;
  }
}
