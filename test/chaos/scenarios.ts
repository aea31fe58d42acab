import type { Chance } from './chance.ts';
import type { Faults } from './faults.ts';

export interface Scenario {
  name: string;
  /** Between two faults, in milliseconds. */
  pauseMs: readonly [low: number, high: number];
  /** What is done once, first. */
  begin?(faults: Faults): Promise<void>;
  fault(faults: Faults, chance: Chance): Promise<void>;
  /** Its faults take up to 45 s to recover from by design: until a lock ends. */
  isSlow: boolean;
  /** Takes too long for a brief run. */
  isLong?: boolean;
}

export const SCENARIOS: readonly Scenario[] = [
  {
    name: 'workers killed',
    pauseMs: [300, 2500],
    begin: (faults) => faults.killLongWorker(),
    fault: (faults) => faults.killWorker(),
    isSlow: true,
  },
  {
    name: 'a mix of all',
    pauseMs: [50, 1500],
    fault: (faults, chance) => {
      const kinds = ['killRedis', 'freezeRedis', 'fillRedis', 'killApi', 'killWorker'] as const;
      const more = [
        'cutConnections',
        'dropApiReply',
        'dropWorkerReply',
        'freezeWorker',
        'meetHostileReceivers',
        'hangUpClients',
        'drainWorker',
        'pauseAutomation',
      ] as const;
      return faults[chance.pick([...kinds, ...more])]();
    },
    isSlow: true,
  },
  {
    name: 'automations paused',
    pauseMs: [300, 1500],
    fault: (faults) => faults.pauseAutomation(),
    isSlow: true,
  },
  {
    name: 'workers drained',
    pauseMs: [300, 1500],
    fault: (faults) => faults.drainWorker(),
    isSlow: false,
  },
  {
    name: 'receivers hostile',
    pauseMs: [500, 2500],
    fault: (faults) => faults.meetHostileReceivers(),
    isSlow: false,
  },
  {
    name: 'clients hang up',
    pauseMs: [100, 1000],
    fault: (faults) => faults.hangUpClients(),
    isSlow: false,
  },
  {
    name: 'replies dropped',
    pauseMs: [20, 400],
    fault: (faults, chance) => (chance.is(0.7) ? faults.dropApiReply() : faults.dropWorkerReply()),
    isSlow: true,
  },
  {
    name: 'Redis killed',
    pauseMs: [300, 2500],
    fault: (faults) => faults.killRedis(),
    isSlow: true,
  },
  {
    name: 'Redis frozen',
    pauseMs: [500, 2500],
    fault: (faults) => faults.freezeRedis(),
    isSlow: false,
  },
  {
    name: 'Redis full',
    pauseMs: [500, 2500],
    fault: (faults) => faults.fillRedis(),
    isSlow: false,
  },
  {
    name: 'Redis restored from a backup',
    pauseMs: [500, 2500],
    fault: (faults) => faults.restoreRedis(),
    isSlow: true,
  },
  {
    name: 'APIs killed',
    pauseMs: [200, 2000],
    fault: (faults) => faults.killApi(),
    isSlow: false,
  },
  {
    name: 'connections cut',
    pauseMs: [20, 1000],
    fault: (faults) => faults.cutConnections(),
    isSlow: true,
  },
  {
    name: 'worker frozen past its lock',
    pauseMs: [0, 500],
    fault: (faults) => faults.freezeWorkerPastLock(),
    isSlow: true,
    isLong: true,
  },
];
