/** One kind of error that the API can answer. */
export interface ErrorDefinition {
  statusCode: number;
  /** What is wrong, in one or two sentences. */
  message: string;
  /** What resolves it, and which resource does. */
  hint: string;
  /** What `message` and `hint` say, in more detail for the page of errors, in Markdown. */
  cause: string;
  cure: string;
  /** Value of the `Retry-After` header, in seconds. */
  retryAfterSeconds?: number;
}

/** Every error of the service by its identifier, the value of `error`. A test follows the links. */
export const ERRORS = {
  missing_api_key: {
    statusCode: 401,
    message: 'The x-api-key header is missing.',
    hint: "Send the automation's key in the request header x-api-key; /docs#authentication says where keys come from.",
    cause: 'The request has no `x-api-key` header. In a pipeline, the secret is often not set for this job.',
    cure: "Add the header with the automation's key.",
  },
  invalid_api_key: {
    statusCode: 401,
    message: 'The API key does not match this automation.',
    hint: 'Check the slug and the key; an operator issues a new key with `orc automations rotate-key <slug>`. See /docs#authentication.',
    cause:
      'No automation has this slug and this key. A wrong slug and a wrong key get the same answer, on purpose.',
    cure: 'Compare both with what was shown when the automation was created. Look for quotes, spaces or a line break around the key. If the key is lost, an operator issues a new one.',
  },
  automation_disabled: {
    statusCode: 403,
    message: 'The automation is disabled; no run was started.',
    hint: 'An operator enables it in the automations screen (`orc console`) or with `orc automations enable <slug>`; see /docs/operate.',
    cause: 'The slug and the key are right, but an operator has disabled the automation.',
    cure: 'Ask the operator, and send the request again once the automation is enabled.',
  },
  invalid_json: {
    statusCode: 400,
    message: 'The request body is not valid JSON in UTF-8.',
    hint: 'Send one JSON object, or no body at all; see /docs#payload.',
    cause:
      'The body is declared as JSON, but is malformed or not UTF-8. Often a shell has removed the quotes.',
    cure: 'In a shell, put the JSON in single quotes or in a file: `-d @payload.json`. `jq -n` builds it safely from variables.',
  },
  invalid_payload: {
    statusCode: 400,
    message: 'The request body is not a JSON object.',
    hint: 'Send an object, such as {"value": …}; if the automation has a payload schema, one that fits it. See /docs#payload-schema.',
    cause:
      'The body is valid JSON, but an array, a string, a number, `true`, `false` or `null`. Or the automation has a payload schema that refuses it: the message then names the place, as a JSON Pointer, and the rule.',
    cure: 'Send an object: `{"items": [1, 2]}` instead of `[1, 2]`. For a schema, send what the rule asks for; [payload schema](https://base-url.invalid/docs#payload-schema) explains the messages.',
  },
  invalid_idempotency_key: {
    statusCode: 400,
    message: 'The Idempotency-Key header is invalid.',
    hint: 'Send 1 to 255 printable ASCII characters, such as a UUID, or leave the header out; see /docs#repeat-safely.',
    cause:
      'The `Idempotency-Key` header is empty, longer than 255 characters, or has characters other than printable ASCII.',
    cure: 'Use a UUID or the number of your pipeline run.',
  },
  bad_request: {
    statusCode: 400,
    message: 'The request is not valid HTTP/1.1, or its URL is invalid.',
    hint: 'Check the URL, the headers and the length of the body; /docs/errors#bad_request lists the usual reasons.',
    cause:
      'The request is not valid HTTP/1.1: a malformed URL, no `Host` header or two, a body that ends too early, or TLS on a plain HTTP port.',
    cure: 'Check the base URL, including `https` or `http`. Behind a proxy, check what the proxy sends.',
  },
  not_found: {
    statusCode: 404,
    message: 'There is nothing at this path.',
    hint: 'See /llms.txt for the public paths and /openapi.json for the endpoints.',
    cause: 'The path is not a public one. Often `/orc` is missing, or something follows the slug.',
    cure: 'Compare the path with [/llms.txt](https://base-url.invalid/llms.txt).',
  },
  method_not_allowed: {
    statusCode: 405,
    message: 'This path does not support that method.',
    hint: 'The Allow response header lists the supported methods; /openapi.json describes both endpoints.',
    cause: 'The path exists, but not for this method: a trigger is a `POST`, everything else a `GET`.',
    cure: 'Use a method from the `Allow` response header. A redirect from `http` to `https` may have turned your `POST` into a `GET`.',
  },
  not_acceptable: {
    statusCode: 406,
    message: 'This page is not available in a format that the Accept header allows.',
    hint: 'Accept text/html or text/markdown, or leave the Accept header out; see /docs#formats.',
    cause: 'The `Accept` header allows neither HTML nor Markdown, and pages have no other format.',
    cure: 'Send `Accept: text/html` or `Accept: text/markdown`, or no `Accept` header, which means Markdown.',
  },
  request_timeout: {
    statusCode: 408,
    message: 'The request did not arrive in time; nothing was accepted.',
    hint: 'Send the request again, headers and body without pauses; see /docs#limits.',
    cause: 'The headers took longer than 10 seconds to arrive, or the whole request longer than 30.',
    cure: 'Send it again. If it happens often, the body is too large for the connection.',
  },
  payload_too_large: {
    statusCode: 413,
    message: 'The request body is too large.',
    hint: 'Send less data, or a link to it; /openapi.json states the limit at the request body.',
    cause: 'The body is larger than the limit: 256 KiB, unless the operator has changed it.',
    cure: 'Store the data where the automation can fetch it, and send the link.',
  },
  uri_too_long: {
    statusCode: 414,
    message: 'The URL is too long.',
    hint: 'Send data in the JSON body, not in the URL; see /docs#limits.',
    cause: 'The URL is longer than 8 KiB.',
    cure: 'Send data in the body. Parameters after the `?` are ignored.',
  },
  unsupported_media_type: {
    statusCode: 415,
    message: 'The request body is not declared as JSON.',
    hint: "Add the request header content-type: application/json (curl: -H 'content-type: application/json'); see /docs#payload.",
    cause:
      'The request has a body, but no `content-type: application/json`. `curl -d` alone declares a form.',
    cure: "Add the header: `-H 'content-type: application/json'`.",
  },
  unsupported_content_encoding: {
    statusCode: 415,
    message: 'The request body has a content-encoding, which this service does not support.',
    hint: 'Send plain JSON without a content-encoding header; see /docs#payload.',
    cause: 'The body has a `content-encoding`, such as `gzip`.',
    cure: 'Turn off request compression in your client.',
  },
  expectation_failed: {
    statusCode: 417,
    message: 'The Expect header asks for something this service does not support.',
    hint: 'Leave the Expect header out, or send Expect: 100-continue; see /docs/errors#expectation_failed.',
    cause: 'The request has an `Expect` header other than `100-continue`.',
    cure: 'Leave out the header. With curl: `-H Expect:`.',
  },
  idempotency_key_reused: {
    statusCode: 422,
    message: 'The Idempotency-Key was used before with another request body.',
    hint: 'Repeat the request with the same body, or use a new Idempotency-Key for a new run; see /docs#repeat-safely.',
    cause:
      'In the last 24 hours, this key was used with another body. Bodies are compared byte for byte, including spaces.',
    cure: 'To repeat a request, send the same bytes. For a new run, use a new key.',
  },
  too_many_failures: {
    statusCode: 429,
    message: 'Too many requests from this address had no valid API key.',
    hint: 'Check the slug and the key: a request with a valid key is still accepted. Or wait as long as the Retry-After response header says. See /docs#authentication.',
    cause: 'More than 100 requests from this address failed authentication within a minute.',
    cure: 'Stop the client that sends wrong keys. Requests with a valid key are still accepted.',
    retryAfterSeconds: 60,
  },
  rate_limited: {
    statusCode: 429,
    message: 'The rate limit of this automation is reached.',
    hint: 'Wait as long as the Retry-After response header says; an operator changes the limit with `orc automations set <slug> --rate`. See /docs#limits.',
    cause:
      'The automation has a rate limit and has reached it. The `RateLimit` response header says when it resets.',
    cure: 'Wait for `Retry-After` seconds. To read the status of a run, repeat its request with its `Idempotency-Key`: a repeated request does not count.',
    retryAfterSeconds: 1,
  },
  headers_too_large: {
    statusCode: 431,
    message: 'The request headers are too large.',
    hint: 'Send fewer or shorter headers; only x-api-key and content-type are needed. See /docs#limits.',
    cause: 'All headers together are larger than 16 KiB, usually because of cookies of another service.',
    cure: 'Send no cookies; this service uses none.',
  },
  internal_error: {
    statusCode: 500,
    message: 'The service failed to handle the request.',
    hint: 'Try again. If it persists, give the x-request-id response header to an operator, who finds the cause in the log. See /docs/errors#internal_error.',
    cause: 'A fault in the service.',
    cure: 'Try again, with an `Idempotency-Key`. If it persists, give the `x-request-id` response header to the operator.',
  },
  unsupported_transfer_encoding: {
    statusCode: 501,
    message: 'The request body has a transfer-encoding other than chunked.',
    hint: 'Send a content-length, or plain chunks; see /docs/errors#unsupported_transfer_encoding.',
    cause: 'The body has a `transfer-encoding` other than `chunked`, such as `gzip, chunked`.',
    cure: 'Send a `content-length`, or plain chunks.',
  },
  queue_unavailable: {
    statusCode: 503,
    message: 'The queue is not available; no run was accepted.',
    hint: 'Try again after the seconds in the Retry-After response header; /orc/health says when the queue is back.',
    cause:
      'Redis, which holds the queue, is down or too slow. If the message says that the run may have been accepted, Redis did not confirm it in time.',
    cure: 'Repeat the request after `Retry-After` seconds, as `curl --retry 5` does. The same `Idempotency-Key` guarantees a single run.',
    retryAfterSeconds: 2,
  },
  queue_full: {
    statusCode: 503,
    message: 'The queue is full; no run was accepted.',
    hint: 'Try again after the seconds in the Retry-After response header; an operator adds workers or raises MAX_QUEUED_RUNS. See /docs#limits.',
    cause: 'The queue is full: it holds at most `MAX_QUEUED_RUNS` waiting runs.',
    cure: 'Repeat the request after `Retry-After` seconds. If it persists, tell the operator, who adds workers.',
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
  'The queue did not confirm the run in time; the run may have been accepted: only with the same Idempotency-Key does a repeat start no second one.';

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
