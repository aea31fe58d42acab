import { CONNECTIONS, SLUG, startInstallation } from '../http-installation.ts';
import type { Sample } from '../http-load.ts';
import { BenchRedis } from '../http-redis.ts';
import {
  type Peer,
  startEnqueueOnly,
  startHandWritten,
  startNodeRed,
  startNoOp,
  startOrcApi,
  startWebhook,
} from '../http-servers.ts';
import { orcTrigger, trigger } from '../http-triggers.ts';
import { type Contestant, ratiosOf, type Turns, takeTurns, toRow } from '../http-turns.ts';
import type { BenchContext, Part, Table } from '../part.ts';

/** In bytes: what the targets are set for. */
const PAYLOAD = 100;

/** The share of rounds, and of seconds, that the comparisons get which no target is set for. */
const SIDE_SHARE = 0.6;

/** From this share of the answers on, requests in progress at the end of a turn are worth a remark. */
const UNFINISHED_SHARE = 0.1;

export const accept: Part = {
  name: 'accept',
  summary:
    'triggers a second and their times, against a route that does nothing, a hand-written one and peers',
  async run(context) {
    const { redis, apiKey, orc, generator } = await startInstallation(context);
    const secondRedis = await BenchRedis.start(context, 'everysec');
    const secondKey = await secondRedis.createAutomation(SLUG);
    const secondOrc = await startOrcApi(context, secondRedis.env);
    await redis.createHandWritten(SLUG, apiKey);
    const noOp = await startNoOp(context);
    const handWritten = await startHandWritten(context, redis.url);
    const enqueueOnly = await startEnqueueOnly(context, redis.url);
    await redis.keep();
    await secondRedis.keep();

    const contestants = (bytes: number): Contestant[] => [
      {
        ...{ name: 'no-op', server: noOp, status: 202 },
        request: trigger(`${noOp.url}/trigger/${SLUG}`, apiKey, bytes),
      },
      {
        ...{ name: 'hand-written', server: handWritten, status: 202, redis },
        request: trigger(`${handWritten.url}/trigger/${SLUG}`, apiKey, bytes),
      },
      {
        ...{ name: 'orc', server: orc, status: 202, redis },
        request: orcTrigger(orc, SLUG, apiKey, bytes),
      },
    ];

    const tables: Table[] = [];
    const compare = async (
      title: string,
      all: Contestant[],
      turns: Omit<Turns, 'generator'>,
      remarksOn: (samples: Map<string, Sample[]>) => string[],
    ) => {
      const samples = await takeTurns(context, all, { ...turns, generator });
      tables.push({
        title: `Accept, ${title} B, appendfsync always`,
        rows: all.map((each) => toRow(each, samples.get(each.name))),
        reference: 'no-op',
        remarks: remarksOn(samples),
      });
    };
    const rounds = Math.ceil(context.rounds * SIDE_SHARE);
    const seconds = Number((context.seconds * SIDE_SHARE).toFixed(1));
    if (context.connections.includes(CONNECTIONS) && context.payloads.includes(PAYLOAD)) {
      const peers = await startPeers(context, apiKey);
      const all: Contestant[] = [
        ...contestants(PAYLOAD),
        {
          ...{ name: 'orc, everysec', server: secondOrc, status: 202, redis: secondRedis },
          request: orcTrigger(secondOrc, SLUG, secondKey, PAYLOAD),
        },
        {
          ...{ name: 'enqueue only', server: enqueueOnly, status: 202, redis },
          request: trigger(`${enqueueOnly.url}/trigger/${SLUG}`, apiKey, PAYLOAD),
        },
        ...peers.contestants,
      ];
      const targets = { rounds: context.rounds, seconds: context.seconds, connections: CONNECTIONS };
      await compare(`${CONNECTIONS} connections, ${PAYLOAD}`, all, targets, (samples) => [
        ratiosOf('orc', samples),
        'enqueue only: the least that BullMQ over ioredis can cost. No key, no check, no index, no log.',
        ...peers.remarks,
      ]);
      const scripted = { rounds, seconds, connections: CONNECTIONS, client: 'fetch' } as const;
      const title = `asked by Node's fetch, ${CONNECTIONS} at a time, ${PAYLOAD}`;
      await compare(title, contestants(PAYLOAD), scripted, (samples) => [
        ratiosOf('orc', samples),
        'what a script sees that asks from one process: nearly all of the time is its own',
      ]);
    }
    for (const connections of context.connections) {
      for (const bytes of context.payloads) {
        if (connections === CONNECTIONS && bytes === PAYLOAD) continue;
        const title = `${connections} connections, ${bytes}`;
        context.progress(`${title} B`);
        await compare(title, contestants(bytes), { connections, rounds, seconds }, (samples) => [
          `${rounds} rounds of ${seconds} s each`,
          ...unfinished(samples, connections),
        ]);
      }
    }
    return tables;
  },
};

async function startPeers(
  context: BenchContext,
  apiKey: string,
): Promise<{ contestants: Contestant[]; remarks: string[] }> {
  const peers: [name: string, path: string, peer: Peer, remark: string][] = [
    [
      'adnanh/webhook',
      `/hooks/${SLUG}`,
      await startWebhook(context, apiKey),
      'adnanh/webhook checks the key and starts /bin/true for each request, which it does not wait for; nothing is durable; its CPU time includes that of the processes it started',
    ],
    ['Node-RED', '/trigger', await startNodeRed(context), 'Node-RED checks no key and starts nothing'],
  ];
  const contestants: Contestant[] = [];
  const remarks: string[] = [];
  for (const [name, path, peer, remark] of peers) {
    if ('missing' in peer) {
      remarks.push(peer.missing);
      continue;
    }
    const { server } = peer;
    const request = trigger(`${server.url}${path}`, apiKey, PAYLOAD);
    contestants.push({ name, server, request, status: 202 });
    remarks.push(remark);
  }
  return { contestants, remarks };
}

/** CPU time is divided by the answers, so that what was in progress at the end of a turn has to be few. */
function unfinished(samples: Map<string, Sample[]>, connections: number): string[] {
  const fewest = Math.min(...[...samples.values()].flat().map(({ answered }) => answered));
  if (connections < fewest * UNFINISHED_SHARE) return [];
  return [
    `up to ${connections} requests were in progress when a turn ended, after as few as ${fewest} answers: CPU µs are too high`,
  ];
}
