import { expect, vi } from 'vitest';
import { type NodeOptions, RedisNode } from './redis-node.ts';

/** Servers that stand in for each other. */
export interface Group {
  /** For REDIS_URL; it may name servers that are away. */
  url: string;
  /** The server that holds orc's keys now. */
  master(): Promise<RedisNode>;
}

/** What the time until a failover begins depends on, in milliseconds. Production's is 5 to 15 s. */
const DOWN_AFTER_MS = 1000;

const MASTER_NAME = 'mymaster';
const SLOTS = 16_384;

export interface SentinelGroup extends Group {
  sentinels: RedisNode[];
  /** The one that is a replica at first. */
  replica: RedisNode;
}

/** A master, a replica and three Sentinels, two of whom have to agree. */
export async function startSentinelGroup(
  options: { redis?: NodeOptions; sentinel?: NodeOptions } = {},
): Promise<SentinelGroup> {
  const { config = [], ...redis } = options.redis ?? {};
  const { config: sentinelConfig = [], ...sentinel } = options.sentinel ?? {};
  const master = await RedisNode.startRedis({ ...redis, config });
  const replica = await RedisNode.startRedis({
    ...redis,
    config: [...config, `replicaof 127.0.0.1 ${master.port}`],
  });
  const sentinels = await Promise.all(
    [0, 1, 2].map(() =>
      RedisNode.startSentinel({
        ...sentinel,
        config: [
          `sentinel monitor ${MASTER_NAME} 127.0.0.1 ${master.port} 2`,
          `sentinel down-after-milliseconds ${MASTER_NAME} ${DOWN_AFTER_MS}`,
          `sentinel failover-timeout ${MASTER_NAME} 5000`,
          ...sentinelConfig,
        ],
      }),
    ),
  );
  await untilReplicating(replica);
  for (const each of sentinels) {
    await vi.waitFor(async () => {
      const known = fieldsOf(await each.command('SENTINEL', 'MASTER', MASTER_NAME));
      expect(known).toMatchObject({ 'num-slaves': '1', 'num-other-sentinels': '2', flags: 'master' });
    }, WAIT);
  }
  // The first one may be killed by a test.
  const last = sentinels.at(-1);
  const hosts = sentinels.map(({ port }) => `127.0.0.1:${port}`).join(',');
  return {
    url: `redis+sentinel://${hosts}/${MASTER_NAME}`,
    sentinels,
    replica,
    master: async () => {
      const address = await last?.command('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', MASTER_NAME);
      return String(address).endsWith(`,${master.port}`) ? master : replica;
    },
  };
}

/** Three masters with a third of the slots each, and one replica: of the master that holds the keys of a prefix. */
export async function startClusterGroup(prefix: string): Promise<Group> {
  const config = [
    'cluster-enabled yes',
    `cluster-node-timeout ${DOWN_AFTER_MS}`,
    'cluster-replica-validity-factor 0',
  ];
  const nodes = await Promise.all([0, 1, 2, 3].map(() => RedisNode.startRedis({ config })));
  const masters = nodes.slice(0, 3);
  const [first, second, third, replica] = nodes;
  if (!first || !second || !third || !replica) throw new Error('there are four nodes');
  const slot = Number(await first.command('CLUSTER', 'KEYSLOT', `{${prefix}}`));
  const share = Math.ceil(SLOTS / masters.length);
  for (const [index, node] of masters.entries()) {
    const slots = Array.from({ length: SLOTS }, (_, number) => number);
    await node.command('CLUSTER', 'ADDSLOTS', ...slots.slice(index * share, (index + 1) * share));
    // Their own agreement on who is who would take seconds.
    await node.command('CLUSTER', 'SET-CONFIG-EPOCH', index + 1);
  }
  for (const node of nodes.slice(1)) await first.command('CLUSTER', 'MEET', '127.0.0.1', node.port);
  const owner = masters[Math.floor(slot / share)] ?? first;
  const ownerId = String(await owner.command('CLUSTER', 'MYID'));
  await vi.waitFor(async () => expect(await replica.command('CLUSTER', 'NODES')).toContain(ownerId), WAIT);
  await replica.command('CLUSTER', 'REPLICATE', ownerId);
  await untilReplicating(replica);
  for (const node of nodes) {
    await vi.waitFor(async () => {
      expect(await node.command('CLUSTER', 'INFO')).toMatch(/cluster_state:ok[\s\S]*cluster_known_nodes:4/);
      expect(await node.command('CLUSTER', 'NODES')).toContain(`slave ${ownerId}`);
    }, WAIT);
  }
  return {
    url: `redis+cluster://${masters.map(({ port }) => `127.0.0.1:${port}`).join(',')}`,
    master: async () => ((await isMaster(replica)) ? replica : owner),
  };
}

async function isMaster(node: RedisNode): Promise<boolean> {
  return String(await node.command('INFO', 'replication')).includes('role:master');
}

const WAIT = { timeout: 30_000, interval: 50 };

async function untilReplicating(replica: RedisNode): Promise<void> {
  await vi.waitFor(async () => {
    const state = await replica.command('INFO', 'replication');
    expect(state).toMatch(/role:slave[\s\S]*master_link_status:up/);
  }, WAIT);
}

/** Sentinel's replies name every value. */
function fieldsOf(reply: unknown): Record<string, string> {
  const parts = reply as string[];
  return Object.fromEntries(
    parts.flatMap((name, index) => (index % 2 === 0 ? [[name, parts[index + 1] ?? '']] : [])),
  );
}
