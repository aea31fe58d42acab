import { type TSchema, Type } from '@sinclair/typebox';
import { API_KEY_PATTERN } from '../core/api-key.ts';
import { SLUG_MAX_LENGTH, SLUG_PATTERN } from '../core/automation.ts';
import { ERRORS, type ErrorId, errorBody } from '../core/errors.ts';
import { RUN_END_REASONS, RUN_STATUSES, type RunEndReason, type RunStatus } from '../core/run.ts';

/** A string that is one of a few. A union of literals would become `anyOf`, of which generators make no type. */
function stringEnum<T extends string>(values: readonly T[], options: { $id: string; description: string }) {
  return Type.Unsafe<T>({ type: 'string', enum: [...values], ...options });
}

/** Refers to a named component. */
function reference<T>({ $id }: TSchema & { static: T }) {
  return Type.Unsafe<T>({ $ref: `${$id}#` });
}

/** Schemas with an `$id` become the named components of the OpenAPI document. */
export const HealthStatusSchema = stringEnum(['ok', 'degraded'] as const, {
  $id: 'HealthStatus',
  description: '`ok`: runs are accepted and executed. `degraded`: runs are accepted, but no worker is alive.',
});

export const HealthReportSchema = Type.Object(
  {
    status: reference(HealthStatusSchema),
    timestamp: Type.String({ format: 'date-time', description: 'Server time of the check.' }),
    version: Type.Optional(Type.String({ description: 'Deployed version of the orchestrator.' })),
    frontendUrl: Type.Optional(
      Type.String({ format: 'uri', description: 'Origin of the web client that this orchestrator serves.' }),
    ),
  },
  { $id: 'HealthReport', title: 'Health report' },
);

export const RunStatusSchema = stringEnum(RUN_STATUSES, {
  $id: 'RunStatus',
  description: 'Status of a run; `queued` when it was just accepted. The last four are final.',
});

export const RunEndReasonSchema = stringEnum(RUN_END_REASONS, {
  $id: 'RunEndReason',
  description:
    'Why a run ended. `exit_code`, `signal`: its command ended by itself, or by a signal. `http_status`: a receiver answered. `network_error`: no receiver answered. `timeout`: its time limit. `check_passed`, `check_failed`: the check of the work of an agent. `agent_stopped`: an agent without a check stopped by itself. `agent_failed`: the agent failed. `max_cost`: it cost as much as it may. `git_missing`, `repo_unavailable`, `ref_not_found`, `workspace_failed`: there was no checkout for the agent. `push_rejected`, `result_too_large`: its work could not be pushed, or kept. `not_started`: its command could not be started, or nothing could be sent. `worker_lost`, `worker_error`: its worker died or failed. `cancelled_by_operator`, `automation_disabled`, `automation_deleted`: it was cancelled.',
});

export const RunOutcomeSchema = Type.Object(
  {
    reason: reference<RunEndReason>(RunEndReasonSchema),
    message: Type.String({ description: 'The same for people; its wording may change.' }),
    exitCode: Type.Optional(Type.Integer({ description: 'Exit code of the command, if it has one.' })),
    httpStatus: Type.Optional(Type.Integer({ description: 'Status that the receiver answered, if it did.' })),
  },
  {
    $id: 'RunOutcome',
    title: 'Outcome of a run',
    description:
      'How the run ended. Present when it has ended and the request prefers `return=representation`.',
  },
);

export const AcceptedRunSchema = Type.Object(
  {
    runId: Type.String({
      pattern: '^run_[0-9a-f-]{36}$',
      description: 'Identifier of the accepted run: `run_` and a UUIDv7.',
    }),
    status: reference<RunStatus>(RunStatusSchema),
    outcome: Type.Optional(reference(RunOutcomeSchema)),
    result: Type.Optional(
      Type.Object(
        {},
        {
          additionalProperties: true,
          description:
            'What the automation chose to tell: a JSON object of its own, at most 64 KiB. Only with `outcome`, if the run has a result.',
        },
      ),
    ),
  },
  { $id: 'AcceptedRun', title: 'Accepted run' },
);

const errorFields = {
  statusCode: Type.Integer({ description: 'HTTP status code, repeated in the body.' }),
  message: Type.String({ description: 'Human-readable explanation.' }),
  error: Type.Optional(
    Type.String({ description: 'Machine-readable error identifier, such as `invalid_api_key`.' }),
  ),
  hint: Type.Optional(
    Type.String({ description: 'What resolves the situation, naming the resource that does.' }),
  ),
};

export const ErrorObjectSchema = Type.Object(errorFields, { $id: 'ErrorObject', title: 'Error object' });

export const UnhealthyStatusSchema = stringEnum(['unavailable'] as const, {
  $id: 'UnhealthyStatus',
  description: 'No run can be accepted, because the queue takes no writes.',
});

/** The answer of a health check that fails is an error object and a health report in one. */
export const UnhealthyReportSchema = Type.Object(
  {
    ...errorFields,
    status: reference(UnhealthyStatusSchema),
    timestamp: HealthReportSchema.properties.timestamp,
    version: HealthReportSchema.properties.version,
    frontendUrl: HealthReportSchema.properties.frontendUrl,
  },
  { $id: 'UnhealthyReport', title: 'Health report and error object' },
);

export const TriggerPayloadSchema = Type.Object(
  {},
  {
    $id: 'TriggerPayload',
    title: 'Trigger payload',
    additionalProperties: true,
    description:
      'An arbitrary JSON object; any properties are allowed. It is handed to the run byte for byte.',
  },
);

/** Judged before a body is read; the OpenAPI document has it as the security scheme. */
export const ApiKeyHeaderSchema = Type.Object({ 'x-api-key': Type.String({ pattern: API_KEY_PATTERN }) });

export const TriggerParamsSchema = Type.Object({
  slug: Type.String({
    pattern: SLUG_PATTERN,
    minLength: 1,
    maxLength: SLUG_MAX_LENGTH,
    description: 'The slug of the automation, as it was handed to you together with its key.',
    examples: ['nightly-report'],
  }),
});

export const TriggerHeadersSchema = Type.Object({
  'idempotency-key': Type.Optional(
    Type.String({
      pattern: '^[\\x20-\\x7e]{1,255}$',
      description:
        'Makes repeating a request safe. For 24 hours, a request with the same key and the same body is answered with the run of the first one and the status it has by then; so repeating it is also the way to wait for a run to end. Choose a new key, such as a UUID, for every run you want. See /docs#repeat-safely.',
      examples: ['6f1c7a52-0d8e-4c7b-9f0a-3b5d2e1f4a6c'],
    }),
  ),
  prefer: Type.Optional(
    Type.String({
      description:
        'With `return=representation` (RFC 7240), a repeated request whose run has ended is answered with its `outcome` and its `result`, if it has one. Other preferences are ignored. See /docs#results.',
      examples: ['return=representation'],
    }),
  ),
});

const RATE_LIMIT = {
  'ratelimit-policy': {
    type: 'string',
    description: "The automation's rate limit, if it has one: `q` runs in `w` seconds (IETF draft).",
  },
  ratelimit: {
    type: 'string',
    description: 'What is left of it: `r` runs, for the next `t` seconds.',
  },
};

export const ACCEPTED_HEADERS = {
  'idempotency-replayed': {
    type: 'string',
    enum: ['true'],
    description: 'Present when the `Idempotency-Key` was known, so that no new run was made.',
  },
  'preference-applied': {
    type: 'string',
    enum: ['return=representation'],
    description: 'Present when the answer has an `outcome`, as the `Prefer` header asks.',
  },
  ...RATE_LIMIT,
};

export const RETRY_AFTER = {
  'retry-after': { type: 'integer', minimum: 1, description: 'Seconds to wait before trying again.' },
};
const REQUEST_ID = {
  'x-request-id': { type: 'string', description: 'Identifier of this request in the logs.' },
};

/** A response of the OpenAPI document: one schema, and an example of every way it can look. */
export function jsonResponse(
  description: string,
  schemaId: string,
  examples: Record<string, unknown>,
  headers: Record<string, object> = {},
) {
  const values = Object.entries(examples).map(([name, value]) => [name, { value }]);
  return {
    description,
    headers: { ...REQUEST_ID, ...headers },
    content: {
      'application/json': { schema: { $ref: `${schemaId}#` }, examples: Object.fromEntries(values) },
    },
  };
}

/** What any request can be answered, because it is broken or the service is. */
export const EVERY_REQUEST_ERRORS = [
  'bad_request',
  'not_found',
  'method_not_allowed',
  'request_timeout',
  'uri_too_long',
  'expectation_failed',
  'headers_too_large',
  'internal_error',
  'unsupported_transfer_encoding',
] as const satisfies ErrorId[];

/** The responses that the given errors make, one per status, with an example of each error. */
export function errorResponses(...ids: ErrorId[]): Record<number, ReturnType<typeof jsonResponse>> {
  const statuses = [...new Set(ids.map((id) => ERRORS[id].statusCode))];
  return Object.fromEntries(
    statuses.map((status) => {
      const sameStatus = ids.filter((id) => ERRORS[id].statusCode === status);
      const description = sameStatus.map((id) => `\`${id}\`: ${ERRORS[id].message}`).join(' ');
      const examples = Object.fromEntries(sameStatus.map((id) => [id, errorBody(id)]));
      const mayRetry = sameStatus.some((id) => 'retryAfterSeconds' in ERRORS[id]);
      return [status, jsonResponse(description, 'ErrorObject', examples, headersOf(status, mayRetry))];
    }),
  );
}

function headersOf(status: number, mayRetry: boolean): Record<string, object> {
  return { ...(mayRetry && RETRY_AFTER), ...(status === 429 && RATE_LIMIT) };
}
