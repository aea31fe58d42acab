import type { Action } from '../../../src/core/actions/actions.ts';
import type { BenchContext, Part, Row, Table } from '../part.ts';
import { cpuMs, launchScript } from '../runs-process.ts';
import type { ReceiverReady } from '../runs-receiver.ts';
import { Stage, until } from '../runs-stage.ts';

/** So many runs are executed in a turn for each second that a turn is to take: about what a core manages. */
const DELIVERIES_PER_SECOND = 800;
const COMMANDS_PER_SECOND = 150;

/** The first runs of a turn, which warm the worker up, are left out. */
const WARM_UP_SHARE = 0.2;

const PLAIN = 'neither';
const TOLD = 'result and event';

export const results: Part = {
  name: 'results',
  summary: 'CPU of a worker for runs with a result and an event, against runs with neither',
  run: async (context) => {
    const stage = await Stage.open(context, 'results');
    const { process: receiving, firstMessage } = launchScript('runs-receiver', {});
    context.defer(() => receiving.stop());
    const { url, resultUrl } = (await firstMessage) as ReceiverReady;
    const shell = (file: string): Action => {
      return {
        type: 'command',
        argv: ['/bin/sh', '-c', `echo '{"ok":true}' > ${file}`],
        env: {},
        passEnv: [],
      };
    };
    const commands = { [PLAIN]: shell('/dev/null'), [TOLD]: shell('"$ORC_RESULT_FILE"') };
    const deliveries = { [PLAIN]: deliveryTo(url), [TOLD]: deliveryTo(resultUrl) };
    return [
      await compare(context, stage, url, 'a command', COMMANDS_PER_SECOND, commands),
      await compare(context, stage, url, 'a URL', DELIVERIES_PER_SECOND, deliveries),
    ];
  },
};

const deliveryTo = (url: string): Action => ({ type: 'http', url });

async function compare(
  { rounds, seconds, progress }: BenchContext,
  stage: Stage,
  receiver: string,
  kind: string,
  perSecond: number,
  actions: Record<string, Action>,
): Promise<Table> {
  const count = perSecond * seconds;
  const unit = 'CPU µs per run';
  const rows: Row[] = Object.keys(actions).map((name) => ({ name, figures: [{ unit, values: [] }] }));
  for (let round = 0; round < rounds; round += 1) {
    for (const { name, figures } of rows) {
      const action = actions[name];
      if (!action) continue;
      const value = await workerCpu(stage, action, name === TOLD ? { onEnd: receiver } : {}, count);
      figures[0]?.values.push(value);
      progress(`round ${round + 1}: ${kind}, ${name} ${value.toFixed(0)} ${unit}`);
    }
  }
  return {
    title: `CPU of a worker for a run of ${kind}, ${count} waiting`,
    rows,
    reference: PLAIN,
    remarks: ['Without the processes that it starts; with the delivery of the events.'],
  };
}

/** Microseconds of CPU that a worker takes for a run, its event included. */
async function workerCpu(
  stage: Stage,
  action: Action,
  options: { onEnd?: string },
  count: number,
): Promise<number> {
  await stage.clear();
  await stage.accept(await stage.createAutomation('told', action, options), count);
  const worker = await stage.startWorker();
  const { redis, keys } = stage.store;
  await until(async () => (await stage.countSucceeded()) >= count * WARM_UP_SHARE);
  const [before, warm] = [cpuMs(worker.pid), await stage.countSucceeded()];
  await until(async () => (await redis.zcard(keys.openRuns())) === 0);
  await until(async () => (await redis.zcard(keys.eventQueues)) === 0);
  const used = cpuMs(worker.pid) - before;
  await worker.stop();
  return (used * 1000) / (count - warm);
}
