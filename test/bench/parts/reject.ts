import { mintApiKey } from '../../../src/core/api-key.ts';
import { CONNECTIONS, SLUG, startInstallation } from '../http-installation.ts';
import { startNoOp, startOrcApi } from '../http-servers.ts';
import { orcTrigger, trigger } from '../http-triggers.ts';
import { type Contestant, ratiosOf, takeTurns, toRow } from '../http-turns.ts';
import type { Part } from '../part.ts';

/** In bytes: what is accepted, what is accepted at most about, and what is too large by one. */
const PAYLOAD = 100;
const BODY_LIMIT = 262_144;

/** Each may fail 100 times a minute; so many that none ever fails more often. */
const ADDRESSES = 9600;

export const reject: Part = {
  name: 'reject',
  summary: 'requests that are refused, against ones that are accepted and a route that does nothing',
  async run(context) {
    const { redis, apiKey, orc, generator } = await startInstallation(context, { TRUST_PROXY: '127.0.0.1' });
    // Failures of one address are soon throttled there, without any being throttled at the other.
    const throttling = await startOrcApi(context, redis.env);
    const disabledKey = await redis.createAutomation('disabled', { enabled: false });
    const noOp = await startNoOp(context);
    await redis.keep();

    const wrongKey = orcTrigger(orc, SLUG, mintApiKey(), PAYLOAD);
    const malformedKey = orcTrigger(orc, SLUG, 'orc_malformed', PAYLOAD);
    const throttledKey = orcTrigger(throttling, SLUG, mintApiKey(), PAYLOAD);
    const nowhere = trigger(`${orc.url}/nowhere`, apiKey, PAYLOAD);
    const tooLarge = orcTrigger(orc, SLUG, apiKey, BODY_LIMIT + 1);

    const own = { server: orc };
    const contestants: Contestant[] = [
      {
        ...{ name: 'no-op', server: noOp, status: 202 },
        request: { ...trigger(`${noOp.url}/trigger/${SLUG}`, apiKey, PAYLOAD), addresses: ADDRESSES },
      },
      {
        ...{ name: 'accept', ...own, status: 202, redis },
        request: orcTrigger(orc, SLUG, apiKey, PAYLOAD),
      },
      {
        ...{ name: '401 wrong key', ...own, status: 401, redis },
        request: { ...wrongKey, addresses: ADDRESSES },
      },
      {
        ...{ name: '401 malformed key', ...own, status: 401 },
        request: { ...malformedKey, addresses: ADDRESSES },
      },
      {
        ...{ name: '429 throttled', server: throttling, status: 429, redis, request: throttledKey },
        // The first failures of a minute, two of which a turn can see the beginning of.
        tolerated: { status: 401, atMost: 200 },
      },
      {
        ...{ name: '403 disabled', ...own, status: 403, redis },
        request: orcTrigger(orc, 'disabled', disabledKey, PAYLOAD),
      },
      { ...{ name: '404', ...own, status: 404 }, request: nowhere },
      {
        ...{ name: `accept ${BODY_LIMIT} B`, ...own, status: 202, redis },
        request: orcTrigger(orc, SLUG, apiKey, BODY_LIMIT),
      },
      { ...{ name: `413 ${BODY_LIMIT + 1} B`, ...own, status: 413, redis }, request: tooLarge },
    ];
    const turns = { ...context, generator, connections: CONNECTIONS };
    const samples = await takeTurns(context, contestants, turns);
    return [
      {
        title: `Reject, ${CONNECTIONS} connections, ${PAYLOAD} B`,
        rows: contestants.map((each) => toRow(each, samples.get(each.name))),
        reference: 'accept',
        remarks: [
          ...['accept', '401 wrong key', '401 malformed key'].map((name) =>
            ratiosOf(name, samples, ['no-op']),
          ),
          `401: requests come from ${ADDRESSES} addresses in turn (TRUST_PROXY and X-Forwarded-For), so that none is throttled; the no-op route gets the same header`,
          '429: a well-formed wrong key from one address that has failed more than 100 times in this minute',
          '413: the key is right, and the client sends the whole body all the same',
        ],
      },
    ];
  },
};
