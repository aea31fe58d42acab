/** One kind of error that the API can answer. */
export interface ErrorDefinition {
  statusCode: number;
  /** What is wrong, in one or two sentences. */
  message: string;
  /** What resolves it, naming the resource that does. */
  hint: string;
  /** Value of the `Retry-After` header, in seconds. */
  retryAfterSeconds?: number;
}

/** Every error of the service, by the identifier that stands in its `error` field. A test follows the links. */
export const ERRORS = {
  missing_api_key: {
    statusCode: 401,
    message: 'The x-api-key header is missing.',
    hint: "Send the automation's key in the request header x-api-key; /docs#authentication says where keys come from.",
  },
  invalid_api_key: {
    statusCode: 401,
    message: 'The API key does not match this automation.',
    hint: 'Check the slug and the key, which belong together; an operator issues a new key with `orc automations rotate-key <slug>`. See /docs#authentication.',
  },
  automation_disabled: {
    statusCode: 403,
    message: 'The automation is disabled, so that it was not run.',
    hint: 'An operator enables it in the automations screen or with `orc automations enable <slug>`.',
  },
  invalid_json: {
    statusCode: 400,
    message: 'The request body is not valid JSON in UTF-8.',
    hint: 'Send one JSON object, or no body at all; see /docs#payload.',
  },
  invalid_payload: {
    statusCode: 400,
    message: 'The request body is JSON, but not an object.',
    hint: 'Wrap the value in an object, such as {"value": …}, or send no body at all; see /docs#payload.',
  },
  invalid_idempotency_key: {
    statusCode: 400,
    message: 'The Idempotency-Key header is not usable.',
    hint: 'Send 1 to 255 printable ASCII characters, such as a UUID, or leave the header out; see /docs#repeat-safely.',
  },
  bad_request: {
    statusCode: 400,
    message: 'The request is not valid HTTP/1.1, or its target is not a valid URL.',
    hint: 'Check the URL, the headers and the length of the body; the usual reasons are listed at /docs/errors#bad_request.',
  },
  not_found: {
    statusCode: 404,
    message: 'There is nothing at this path.',
    hint: 'The public paths are listed in /llms.txt and described in /openapi.json.',
  },
  method_not_allowed: {
    statusCode: 405,
    message: 'This path does not answer that method.',
    hint: 'The Allow response header lists the methods it answers; both endpoints are described in /openapi.json.',
  },
  not_acceptable: {
    statusCode: 406,
    message: 'This page is not available in a form that the Accept header allows.',
    hint: 'Accept text/html or text/markdown, or leave the Accept header out; see /docs#formats.',
  },
  request_timeout: {
    statusCode: 408,
    message: 'The request did not arrive completely in time.',
    hint: 'Send the headers and the body without pauses; nothing was accepted, so that sending it again is safe. See /docs#limits.',
  },
  payload_too_large: {
    statusCode: 413,
    message: 'The request body is larger than this service accepts.',
    hint: 'Send less, or a link to the data; the limit is the maximum stated at the request body in /openapi.json.',
  },
  uri_too_long: {
    statusCode: 414,
    message: 'The request target is longer than this service accepts.',
    hint: 'Put data into the JSON body instead of the URL; see /docs#limits.',
  },
  unsupported_media_type: {
    statusCode: 415,
    message: 'The request body is not declared as JSON.',
    hint: "Add the request header content-type: application/json (curl: -H 'content-type: application/json'); see /docs#payload.",
  },
  unsupported_content_encoding: {
    statusCode: 415,
    message: 'The request body is compressed or encoded, which this service does not accept.',
    hint: 'Send the JSON as it is, without a content-encoding header; see /docs#payload.',
  },
  expectation_failed: {
    statusCode: 417,
    message: 'The Expect header asks for something this service does not do.',
    hint: 'Leave the Expect header out, or send Expect: 100-continue; see /docs/errors#expectation_failed.',
  },
  idempotency_key_reused: {
    statusCode: 422,
    message: 'The Idempotency-Key was used before with another request body.',
    hint: 'Repeat a request with exactly the same body, or choose a new Idempotency-Key for a new run; see /docs#repeat-safely.',
  },
  too_many_failures: {
    statusCode: 429,
    message: 'Too many requests from this address carried no valid API key.',
    hint: 'Wait as long as the Retry-After response header says and check the slug and the key; a valid key is accepted all the time. See /docs#authentication.',
    retryAfterSeconds: 60,
  },
  rate_limited: {
    statusCode: 429,
    message: 'This automation has accepted as many runs as its rate limit allows.',
    hint: 'Wait as long as the Retry-After response header says; an operator sets the limit with the --rate option of `orc automations create`. See /docs#limits.',
    retryAfterSeconds: 1,
  },
  headers_too_large: {
    statusCode: 431,
    message: 'The request headers are larger than this service accepts.',
    hint: 'Send fewer or shorter headers; only x-api-key and content-type are needed. See /docs#limits.',
  },
  internal_error: {
    statusCode: 500,
    message: 'The service failed to handle the request.',
    hint: 'Try again; if it persists, give the x-request-id response header to an operator, who finds the cause in the log. See /docs/errors#internal_error.',
  },
  unsupported_transfer_encoding: {
    statusCode: 501,
    message: 'The request body has a transfer coding other than chunked.',
    hint: 'Send the body with a content-length, or in chunks that are not compressed; see /docs/errors#unsupported_transfer_encoding.',
  },
  queue_unavailable: {
    statusCode: 503,
    message: 'The queue is not available, so that nothing was accepted.',
    hint: 'Try again after the seconds in the Retry-After response header; /orc/health says when the queue is back.',
    retryAfterSeconds: 2,
  },
  queue_full: {
    statusCode: 503,
    message: 'As many runs are waiting as this service holds; this one was not accepted.',
    hint: 'Try again after the seconds in the Retry-After response header; an operator adds workers or raises MAX_QUEUED_RUNS. See /docs#limits.',
    retryAfterSeconds: 5,
  },
} as const satisfies Record<string, ErrorDefinition>;

export type ErrorId = keyof typeof ERRORS;

/** The error object of the contract (spec.md, "Errors"). */
export interface ErrorBody {
  statusCode: number;
  error: ErrorId;
  message: string;
  hint: string;
}

export function errorBody(id: ErrorId, message: string = ERRORS[id].message): ErrorBody {
  const { statusCode, hint } = ERRORS[id];
  return { statusCode, error: id, message, hint };
}

/**
 * Message of a `queue_unavailable` that came too late to be sure: the run was on its way to Redis when the time for
 * accepting it was over.
 */
export const UNCONFIRMED_MESSAGE =
  'The queue did not confirm the run in time; the run may have been accepted, or not.';

export interface ApiErrorOptions {
  /** Replaces the catalogue's message where the situation knows better. */
  message?: string;
  cause?: unknown;
  /** Replaces the catalogue's value of the `Retry-After` header. */
  retryAfterSeconds?: number;
  /** Further response headers. */
  headers?: Record<string, string>;
}

/** An error of the catalogue, thrown by its identifier. The `cause` is for the log and never reaches the client. */
export class ApiError extends Error {
  override name = 'ApiError';
  readonly id: ErrorId;
  /** Value of the `Retry-After` header, where the answer carries one. */
  readonly retryAfterSeconds: number | undefined;
  readonly headers: Record<string, string>;

  constructor(id: ErrorId, options: ApiErrorOptions = {}) {
    const definition: ErrorDefinition = ERRORS[id];
    super(options.message ?? definition.message, { cause: options.cause });
    this.id = id;
    this.headers = options.headers ?? {};
    this.retryAfterSeconds = options.retryAfterSeconds ?? definition.retryAfterSeconds;
  }
}
