import { CONNECTIONS, startInstallation } from '../http-installation.ts';
import { orcTrigger } from '../http-triggers.ts';
import { type Contestant, ratiosOf, takeTurns, toRow } from '../http-turns.ts';
import type { Part } from '../part.ts';

/** In bytes. */
const PAYLOAD = 100;

/** More than any turn accepts. */
const NEVER = { limit: 1_000_000_000, windowMs: 3_600_000 };

/** The fields of the payload that has a schema. */
const FIELDS = Array.from({ length: 20 }, (_, index) => `field${index}`);

const SCHEMA = {
  type: 'object',
  required: FIELDS,
  properties: Object.fromEntries(FIELDS.map((name) => [name, { type: 'string', maxLength: 100 }])),
  additionalProperties: false,
};

/** A contestant with a payload that fits the schema. */
function withFields(contestant: Contestant): Contestant {
  const body = JSON.stringify(Object.fromEntries(FIELDS.map((name) => [name, 'value'])));
  return { ...contestant, request: { ...contestant.request, body } };
}

export const kinds: Part = {
  name: 'kinds',
  summary:
    'triggers with an Idempotency-Key, a rate, a concurrency limit and a payload schema, against plain ones',
  async run(context) {
    const { redis, apiKey, orc, generator } = await startInstallation(context);
    const rateKey = await redis.createAutomation('limited', { rate: NEVER });
    const laneKey = await redis.createAutomation('in-a-lane', { concurrency: 10 });
    const schemaKey = await redis.createAutomation('checked', { schema: SCHEMA });
    await redis.keep();
    // Each request has an id of its own in a header, so that the client's part is the same for all.
    const contestant = (name: string, slug: string, key: string, header: string): Contestant => {
      const request = orcTrigger(orc, slug, key, PAYLOAD);
      const headers = { ...request.headers, [header]: 'bench-[<id>]' };
      return { name, server: orc, status: 202, redis, request: { ...request, headers, hasIds: true } };
    };
    const contestants = [
      contestant('plain', 'bench', apiKey, 'x-request-id'),
      contestant('Idempotency-Key', 'bench', apiKey, 'idempotency-key'),
      contestant('--rate', 'limited', rateKey, 'x-request-id'),
      contestant('--concurrency', 'in-a-lane', laneKey, 'x-request-id'),
      withFields(contestant('20 fields', 'bench', apiKey, 'x-request-id')),
      withFields(contestant('20 fields, --schema', 'checked', schemaKey, 'x-request-id')),
    ];
    const turns = { ...context, generator, connections: CONNECTIONS };
    const samples = await takeTurns(context, contestants, turns);
    return [
      {
        title: `Kinds of triggers, ${CONNECTIONS} connections, ${PAYLOAD} B, appendfsync always`,
        rows: contestants.map((each) => toRow(each, samples.get(each.name))),
        reference: 'plain',
        remarks: [
          ...contestants.slice(1, -2).map(({ name }) => ratiosOf(name, samples, ['plain'])),
          ratiosOf('20 fields, --schema', samples, ['20 fields']),
        ],
      },
    ];
  },
};
