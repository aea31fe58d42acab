import {
  ACCEPTED_HEADERS,
  EVERY_REQUEST_ERRORS,
  errorResponses,
  jsonResponse,
  TriggerHeadersSchema,
  TriggerParamsSchema,
  TriggerPayloadSchema,
} from './schemas.ts';

const EXAMPLE = { runId: 'run_0195a2c4-7b1e-7f3a-9c5d-2e8f4a6b1c3d', status: 'queued' };

/** What the trigger takes and answers: judges requests, serialises answers, and is the operation in the OpenAPI document. */
export const triggerOperation = {
  operationId: 'triggerAutomation',
  summary: 'Start a run of an automation',
  description:
    "Starts a run of a pre-configured automation, with the automation's own API key. Use it when the work of that automation is to be done now, and once for every time it is to be done: each accepted request is a run with effects in the real world. The run is executed asynchronously: the answer is its identifier, not its result. The optional JSON object in the body becomes the run's trigger payload. Send an `Idempotency-Key` to retry without a second run, and to wait: the same request with the same key is answered with the current status of its run, until that is `succeeded`, `failed`, `timed_out` or `cancelled`. With `Prefer: return=representation`, that last answer also has the `outcome` and the `result` of the run. On 429 and 503, wait as many seconds as `Retry-After` says.",
  tags: ['Automations'],
  security: [{ apiKey: [] }],
  params: TriggerParamsSchema,
  headers: TriggerHeadersSchema,
  body: TriggerPayloadSchema,
  response: {
    202: jsonResponse(
      'The run is accepted and queued; or, for a known `Idempotency-Key`, this is how its run stands now.',
      'AcceptedRun',
      {
        accepted: EXAMPLE,
        replayed: { ...EXAMPLE, status: 'succeeded' },
        represented: {
          ...EXAMPLE,
          status: 'succeeded',
          outcome: { reason: 'exit_code', message: 'The command exited with code 0.', exitCode: 0 },
          result: { version: '1.4.2', url: 'https://app.example.com' },
        },
      },
      ACCEPTED_HEADERS,
    ),
    ...errorResponses(
      ...EVERY_REQUEST_ERRORS,
      'invalid_idempotency_key',
      'invalid_json',
      'invalid_payload',
      'missing_api_key',
      'invalid_api_key',
      'automation_disabled',
      'payload_too_large',
      'unsupported_media_type',
      'unsupported_content_encoding',
      'idempotency_key_reused',
      'too_many_failures',
      'rate_limited',
      'queue_unavailable',
      'queue_full',
    ),
  },
};
