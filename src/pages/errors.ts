import { ERRORS, type ErrorId, errorBody } from '../core/errors.ts';

/** The cause of an error and its cure, in more detail than `message` and `hint`. */
interface Explanation {
  cause: string;
  cure: string;
}

const EXPLANATIONS: Record<ErrorId, Explanation> = {
  missing_api_key: {
    cause: 'The request has no `x-api-key` header. In a pipeline, the secret is often not set for this job.',
    cure: "Add the header with the automation's key.",
  },
  invalid_api_key: {
    cause:
      'No automation has this slug and this key. A wrong slug and a wrong key get the same answer, on purpose.',
    cure: 'Compare both with what was shown when the automation was created. Look for quotes, spaces or a line break around the key. If the key is lost, an operator issues a new one.',
  },
  automation_disabled: {
    cause: 'The slug and the key are right, but an operator has disabled the automation.',
    cure: 'Ask the operator, and send the request again once the automation is enabled.',
  },
  invalid_json: {
    cause:
      'The body is declared as JSON, but is malformed or not UTF-8. Often a shell has removed the quotes.',
    cure: 'In a shell, put the JSON in single quotes or in a file: `-d @payload.json`. `jq -n` builds it safely from variables.',
  },
  invalid_payload: {
    cause: 'The body is valid JSON, but an array, a string, a number, `true`, `false` or `null`.',
    cure: 'Send an object: `{"items": [1, 2]}` instead of `[1, 2]`.',
  },
  invalid_idempotency_key: {
    cause:
      'The `Idempotency-Key` header is empty, longer than 255 characters, or has characters other than printable ASCII.',
    cure: 'Use a UUID or the number of your pipeline run.',
  },
  bad_request: {
    cause:
      'The request is not valid HTTP/1.1: a malformed URL, no `Host` header or two, a body that ends too early, or TLS on a plain HTTP port.',
    cure: 'Check the base URL, including `https` or `http`. Behind a proxy, check what the proxy sends.',
  },
  not_found: {
    cause: 'The path is not a public one. Often `/orc` is missing, or something follows the slug.',
    cure: 'Compare the path with [/llms.txt](https://base-url.invalid/llms.txt).',
  },
  method_not_allowed: {
    cause: 'The path exists, but not for this method: a trigger is a `POST`, everything else a `GET`.',
    cure: 'Use a method from the `Allow` response header. A redirect from `http` to `https` may have turned your `POST` into a `GET`.',
  },
  not_acceptable: {
    cause: 'The `Accept` header allows neither HTML nor Markdown, and pages have no other format.',
    cure: 'Send `Accept: text/html` or `Accept: text/markdown`, or no `Accept` header, which means Markdown.',
  },
  request_timeout: {
    cause: 'The headers took longer than 10 seconds to arrive, or the whole request longer than 30.',
    cure: 'Send it again. If it happens often, the body is too large for the connection.',
  },
  payload_too_large: {
    cause: 'The body is larger than the limit: 256 KiB, unless the operator has changed it.',
    cure: 'Store the data where the automation can fetch it, and send the link.',
  },
  uri_too_long: {
    cause: 'The URL is longer than 8 KiB.',
    cure: 'Send data in the body. Parameters after the `?` are ignored.',
  },
  unsupported_media_type: {
    cause:
      'The request has a body, but no `content-type: application/json`. `curl -d` alone declares a form.',
    cure: "Add the header: `-H 'content-type: application/json'`.",
  },
  unsupported_content_encoding: {
    cause: 'The body has a `content-encoding`, such as `gzip`.',
    cure: 'Turn off request compression in your client.',
  },
  expectation_failed: {
    cause: 'The request has an `Expect` header other than `100-continue`.',
    cure: 'Leave out the header. With curl: `-H Expect:`.',
  },
  idempotency_key_reused: {
    cause:
      'In the last 24 hours, this key was used with another body. Bodies are compared byte for byte, including spaces.',
    cure: 'To repeat a request, send the same bytes. For a new run, use a new key.',
  },
  too_many_failures: {
    cause: 'More than 100 requests from this address failed authentication within a minute.',
    cure: 'Stop the client that sends wrong keys. Requests with a valid key are still accepted.',
  },
  rate_limited: {
    cause:
      'The automation has a rate limit and has reached it. The `RateLimit` response header says when it resets.',
    cure: 'Wait for `Retry-After` seconds. To read the status of a run, repeat its request with its `Idempotency-Key`: a repeated request does not count.',
  },
  headers_too_large: {
    cause: 'All headers together are larger than 16 KiB, usually because of cookies of another service.',
    cure: 'Send no cookies; this service uses none.',
  },
  internal_error: {
    cause: 'A fault in the service.',
    cure: 'Try again, with an `Idempotency-Key`. If it persists, give the `x-request-id` response header to the operator.',
  },
  unsupported_transfer_encoding: {
    cause: 'The body has a `transfer-encoding` other than `chunked`, such as `gzip, chunked`.',
    cure: 'Send a `content-length`, or plain chunks.',
  },
  queue_unavailable: {
    cause:
      'Redis, which holds the queue, is down or too slow. If the message says that the run may have been accepted, Redis did not confirm it in time.',
    cure: 'Repeat the request after `Retry-After` seconds, as `curl --retry 5` does. The same `Idempotency-Key` guarantees a single run.',
  },
  queue_full: {
    cause: 'As many runs wait as the queue holds (`MAX_QUEUED_RUNS`).',
    cure: 'Repeat the request after `Retry-After` seconds. If it persists, tell the operator, who adds workers.',
  },
};

/** The page that lists every error of the catalogue. */
export function errorsMarkdown(): string {
  const ids = Object.keys(ERRORS) as ErrorId[];
  const byStatus = ids.toSorted((a, b) => ERRORS[a].statusCode - ERRORS[b].statusCode);
  const index = byStatus.map((id) => `- ${ERRORS[id].statusCode} [\`${id}\`](#${id})`);
  return `# Errors

Every error is a JSON object with \`statusCode\`, \`error\`, \`message\` and \`hint\`. \`error\` is the identifier to program against; \`hint\` says what to do. \`429\` and \`503\` have a \`Retry-After\` header, in seconds.

${index.join('\n')}

${byStatus.map(section).join('\n\n')}
`;
}

function section(id: ErrorId): string {
  const { cause, cure } = EXPLANATIONS[id];
  return `## ${id}

**Cause.** ${cause}

**Cure.** ${cure}

\`\`\`json
${JSON.stringify(errorBody(id), null, 1).replace(/^ /gm, '  ')}
\`\`\``;
}
