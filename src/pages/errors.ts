import { ERRORS, type ErrorId, errorBody } from '../core/errors.ts';

/** Why an error is answered and what to do about it, in more words than the answer's own `message` and `hint`. */
interface Explanation {
  cause: string;
  cure: string;
}

const EXPLANATIONS: Record<ErrorId, Explanation> = {
  missing_api_key: {
    cause:
      'The request has no header `x-api-key`. In a pipeline, the secret is often just not set for this job.',
    cure: "Add the header, with the automation's own key.",
  },
  invalid_api_key: {
    cause:
      'No automation has this slug and this key. Keys of other automations and mistyped slugs look the same from outside, on purpose.',
    cure: 'Compare both with what was shown when the automation was created. Look for quotes, spaces or a line break around the key. If the key is lost, an operator issues a new one.',
  },
  automation_disabled: {
    cause: 'Slug and key are right, but somebody has disabled the automation.',
    cure: 'Ask who looks after it. Nothing was queued: send the request again once it is enabled.',
  },
  invalid_json: {
    cause:
      'The body is declared as JSON, but does not parse, or is not UTF-8. Often a shell has removed the quotes.',
    cure: 'In a shell, put the JSON into single quotes, or into a file: `-d @payload.json`. `jq -n` builds it safely from variables.',
  },
  invalid_payload: {
    cause: 'The body is valid JSON, but an array, a string, a number, `true`, `false` or `null`.',
    cure: 'Send an object: `{"items": [1, 2]}` instead of `[1, 2]`.',
  },
  invalid_idempotency_key: {
    cause:
      'The header `Idempotency-Key` is empty, longer than 255 characters, or holds other than printable ASCII.',
    cure: 'Use a UUID, or the number of your pipeline run.',
  },
  bad_request: {
    cause:
      'What arrived is not valid HTTP/1.1: a broken URL, no `Host` or two, a body that ends too early, or TLS on a port for plain HTTP.',
    cure: 'Check the base URL, `https` against `http` included. Behind a proxy, look at what it sends on.',
  },
  not_found: {
    cause:
      'The path is none of the public ones. Often `/orc` is missing, or something stands after the slug.',
    cure: 'Compare the path with [/llms.txt](https://base-url.invalid/llms.txt).',
  },
  method_not_allowed: {
    cause: 'The path exists, but not for this method: a trigger is a `POST`, everything else a `GET`.',
    cure: 'Use a method of the `Allow` response header. A redirect from `http` to `https` may have turned your `POST` into a `GET`.',
  },
  not_acceptable: {
    cause: 'A page was asked for in a form it does not have. Pages are HTML and Markdown.',
    cure: 'Send `Accept: text/html` or `Accept: text/markdown`, or no `Accept` at all, which means Markdown.',
  },
  request_timeout: {
    cause: 'The headers took longer than 10 seconds to arrive, or the whole request longer than 30.',
    cure: 'Send it again; nothing was accepted. If it happens often, the body is too large for the line.',
  },
  payload_too_large: {
    cause: 'The body is larger than the limit: 256 KiB, unless the operator has set another one.',
    cure: 'Put the data where the automation can fetch it, and send the link.',
  },
  uri_too_long: {
    cause: 'The URL is longer than 8 KiB.',
    cure: 'Send data in the body, not in the URL; parameters after the `?` are ignored anyway.',
  },
  unsupported_media_type: {
    cause: 'There is a body, but no `content-type: application/json`. `curl -d` alone declares a form.',
    cure: "Add the header: `-H 'content-type: application/json'`.",
  },
  unsupported_content_encoding: {
    cause: 'The body has a `content-encoding`, such as `gzip`.',
    cure: "Switch your client's request compression off.",
  },
  expectation_failed: {
    cause: 'The request has an `Expect` header with something else than `100-continue`.',
    cure: 'Leave the header out. curl: `-H Expect:`.',
  },
  idempotency_key_reused: {
    cause:
      'In the last 24 hours, this key came with another body. Bodies are compared byte for byte, spaces included.',
    cure: 'A repetition sends the same bytes; a new run gets a new key.',
  },
  too_many_failures: {
    cause: 'More than 100 requests of this address failed authentication within a minute.',
    cure: 'Stop what sends wrong keys. A request with the right key is accepted all the time.',
  },
  rate_limited: {
    cause: 'The automation has a rate limit, and it is used up. `RateLimit` in the answer says until when.',
    cure: 'Wait for `Retry-After` seconds. To learn how a run stands, repeat its request with its `Idempotency-Key`: that counts against no limit.',
  },
  headers_too_large: {
    cause: 'All headers together are larger than 16 KiB. Mostly it is cookies of another service.',
    cure: 'Send no cookies; this service uses none.',
  },
  internal_error: {
    cause: 'A fault of the service.',
    cure: 'Try again, with an `Idempotency-Key`. If it stays, tell the operator the `x-request-id` of the answer.',
  },
  unsupported_transfer_encoding: {
    cause: 'The body comes with a transfer coding besides `chunked`, such as `gzip, chunked`.',
    cure: 'Send a `content-length`, or plain chunks.',
  },
  queue_unavailable: {
    cause:
      'Redis, which keeps the queue, is away or too slow. Where the message says that the run may have been accepted, its confirmation came too late.',
    cure: 'Repeat the request after `Retry-After` seconds; with the same `Idempotency-Key` there is never a second run. `curl --retry 5` does both.',
  },
  queue_full: {
    cause: 'More runs wait than the workers get done.',
    cure: 'Repeat the request after `Retry-After` seconds. If it stays, tell the operator.',
  },
};

/** The page that lists every error of the catalogue; it cannot forget one. */
export function errorsMarkdown(): string {
  const ids = Object.keys(ERRORS) as ErrorId[];
  const byStatus = ids.toSorted((a, b) => ERRORS[a].statusCode - ERRORS[b].statusCode);
  const index = byStatus.map((id) => `- ${ERRORS[id].statusCode} [\`${id}\`](#${id})`);
  return `# Errors

Every error is a JSON object with \`statusCode\`, \`error\`, \`message\` and \`hint\`. \`error\` is the identifier to program against, \`hint\` says what resolves the situation. \`429\` and \`503\` carry \`Retry-After\`, in seconds.

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
