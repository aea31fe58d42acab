/** One kind of error that the API can answer. */
export interface ErrorDefinition {
  statusCode: number;
  /** What is wrong, in one or two sentences. */
  message: string;
  /** What resolves it, and which resource does. */
  hint: string;
  /** Value of the `Retry-After` header, in seconds. */
  retryAfterSeconds?: number;
}

/** Every error of the service by its identifier, the value of `error`. A test follows the links. */
export const ERRORS = {
  missing_api_key: {
    statusCode: 401,
    message: 'The x-api-key header is missing.',
    hint: "Send the automation's key in the request header x-api-key; /docs#authentication says where keys come from.",
  },
  invalid_api_key: {
    statusCode: 401,
    message: 'The API key does not match this automation.',
    hint: 'Check the slug and the key; an operator issues a new key with `orc automations rotate-key <slug>`. See /docs#authentication.',
  },
  automation_disabled: {
    statusCode: 403,
    message: 'The automation is disabled; no run was started.',
    hint: 'An operator enables it in the automations screen or with `orc automations enable <slug>`.',
  },
  invalid_json: {
    statusCode: 400,
    message: 'The request body is not valid JSON in UTF-8.',
    hint: 'Send one JSON object, or no body at all; see /docs#payload.',
  },
  invalid_payload: {
    statusCode: 400,
    message: 'The request body is not a JSON object.',
    hint: 'Wrap the value in an object, such as {"value": …}, or send no body at all; see /docs#payload.',
  },
  invalid_idempotency_key: {
    statusCode: 400,
    message: 'The Idempotency-Key header is invalid.',
    hint: 'Send 1 to 255 printable ASCII characters, such as a UUID, or leave the header out; see /docs#repeat-safely.',
  },
  bad_request: {
    statusCode: 400,
    message: 'The request is not valid HTTP/1.1, or its URL is invalid.',
    hint: 'Check the URL, the headers and the length of the body; /docs/errors#bad_request lists the usual reasons.',
  },
  not_found: {
    statusCode: 404,
    message: 'There is nothing at this path.',
    hint: 'See /llms.txt for the public paths and /openapi.json for the endpoints.',
  },
  method_not_allowed: {
    statusCode: 405,
    message: 'This path does not support that method.',
    hint: 'The Allow response header lists the supported methods; /openapi.json describes both endpoints.',
  },
  not_acceptable: {
    statusCode: 406,
    message: 'This page is not available in a format that the Accept header allows.',
    hint: 'Accept text/html or text/markdown, or leave the Accept header out; see /docs#formats.',
  },
  request_timeout: {
    statusCode: 408,
    message: 'The request did not arrive in time; nothing was accepted.',
    hint: 'Send the request again, headers and body without pauses; see /docs#limits.',
  },
  payload_too_large: {
    statusCode: 413,
    message: 'The request body is too large.',
    hint: 'Send less data, or a link to it; /openapi.json states the limit at the request body.',
  },
  uri_too_long: {
    statusCode: 414,
    message: 'The URL is too long.',
    hint: 'Send data in the JSON body, not in the URL; see /docs#limits.',
  },
  unsupported_media_type: {
    statusCode: 415,
    message: 'The request body is not declared as JSON.',
    hint: "Add the request header content-type: application/json (curl: -H 'content-type: application/json'); see /docs#payload.",
  },
  unsupported_content_encoding: {
    statusCode: 415,
    message: 'The request body has a content-encoding, which this service does not support.',
    hint: 'Send plain JSON without a content-encoding header; see /docs#payload.',
  },
  expectation_failed: {
    statusCode: 417,
    message: 'The Expect header asks for something this service does not support.',
    hint: 'Leave the Expect header out, or send Expect: 100-continue; see /docs/errors#expectation_failed.',
  },
  idempotency_key_reused: {
    statusCode: 422,
    message: 'The Idempotency-Key was used before with another request body.',
    hint: 'Repeat the request with the same body, or use a new Idempotency-Key for a new run; see /docs#repeat-safely.',
  },
  too_many_failures: {
    statusCode: 429,
    message: 'Too many requests from this address had no valid API key.',
    hint: 'Check the slug and the key: a request with a valid key is still accepted. Or wait as long as the Retry-After response header says. See /docs#authentication.',
    retryAfterSeconds: 60,
  },
  rate_limited: {
    statusCode: 429,
    message: 'The rate limit of this automation is reached.',
    hint: 'Wait as long as the Retry-After response header says; an operator sets the limit with the --rate option of `orc automations create`. See /docs#limits.',
    retryAfterSeconds: 1,
  },
  headers_too_large: {
    statusCode: 431,
    message: 'The request headers are too large.',
    hint: 'Send fewer or shorter headers; only x-api-key and content-type are needed. See /docs#limits.',
  },
  internal_error: {
    statusCode: 500,
    message: 'The service failed to handle the request.',
    hint: 'Try again. If it persists, give the x-request-id response header to an operator, who finds the cause in the log. See /docs/errors#internal_error.',
  },
  unsupported_transfer_encoding: {
    statusCode: 501,
    message: 'The request body has a transfer-encoding other than chunked.',
    hint: 'Send a content-length, or plain chunks; see /docs/errors#unsupported_transfer_encoding.',
  },
  queue_unavailable: {
    statusCode: 503,
    message: 'The queue is not available; no run was accepted.',
    hint: 'Try again after the seconds in the Retry-After response header; /orc/health says when the queue is back.',
    retryAfterSeconds: 2,
  },
  queue_full: {
    statusCode: 503,
    message: 'The queue is full; no run was accepted.',
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

/** Message of a `queue_unavailable` when the run was sent to Redis and Redis did not confirm it in time. */
export const UNCONFIRMED_MESSAGE =
  'The queue did not confirm the run in time; the run may have been accepted.';

export interface ApiErrorOptions {
  /** Replaces the catalogue's message. */
  message?: string;
  cause?: unknown;
  /** Replaces the catalogue's `Retry-After`. */
  retryAfterSeconds?: number;
  /** Further response headers. */
  headers?: Record<string, string>;
}

/** An error of the catalogue, thrown by its identifier. The `cause` is for the log and never reaches the client. */
export class ApiError extends Error {
  override name = 'ApiError';
  readonly id: ErrorId;
  /** Value of the `Retry-After` header, in seconds. */
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
