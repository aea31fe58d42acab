import { CONNECTIONS, SLUG, startInstallation } from '../http-installation.ts';
import { BenchRedis } from '../http-redis.ts';
import { startHandWritten, startNoOp, startOrcApi } from '../http-servers.ts';
import { orcTrigger, trigger } from '../http-triggers.ts';
import { type Contestant, ratiosOf, takeTurns, toRow } from '../http-turns.ts';
import type { Part } from '../part.ts';

/** In bytes. */
const PAYLOAD = 100;

export const accept: Part = {
  name: 'accept',
  summary: 'triggers a second and their times, against a route that does nothing and a hand-written one',
  async run(context) {
    const { redis, apiKey, orc, generator } = await startInstallation(context);
    const secondRedis = await BenchRedis.start(context, 'everysec');
    const secondKey = await secondRedis.createAutomation(SLUG);
    const secondOrc = await startOrcApi(context, secondRedis.env);
    await redis.createHandWritten(SLUG, apiKey);
    const noOp = await startNoOp(context);
    const handWritten = await startHandWritten(context, redis.url);
    await redis.keep();
    await secondRedis.keep();
    const contestants: Contestant[] = [
      {
        ...{ name: 'no-op', server: noOp, status: 202 },
        request: trigger(`${noOp.url}/trigger/${SLUG}`, apiKey, PAYLOAD),
      },
      {
        ...{ name: 'hand-written', server: handWritten, status: 202, redis },
        request: trigger(`${handWritten.url}/trigger/${SLUG}`, apiKey, PAYLOAD),
      },
      { name: 'orc', server: orc, status: 202, redis, request: orcTrigger(orc, SLUG, apiKey, PAYLOAD) },
      {
        ...{ name: 'orc, everysec', server: secondOrc, status: 202, redis: secondRedis },
        request: orcTrigger(secondOrc, SLUG, secondKey, PAYLOAD),
      },
    ];
    const samples = await takeTurns(context, contestants, {
      ...context,
      generator,
      connections: CONNECTIONS,
    });
    return [
      {
        title: `Accept, ${CONNECTIONS} connections, ${PAYLOAD} B, appendfsync always`,
        rows: contestants.map((each) => toRow(each, samples.get(each.name))),
        reference: 'no-op',
        remarks: [ratiosOf('orc', samples)],
      },
    ];
  },
};
