import { expect } from 'vitest';
import type { LockTiming } from '../../src/worker/lease.ts';
import { atEnd } from './at-end.ts';
import { postTrigger } from './http.ts';
import { runOrc } from './orc.ts';
import { startApiProcess, startTimedWorker, startWorkerProcess } from './orc-process.ts';
import { openTestStore } from './store.ts';

/** What an operator sees of a run that has ended. */
export interface SeenRun {
  /** `orc runs show` */
  shown: string;
  /** `orc runs logs` */
  logs: string;
}

export interface AgentStage {
  /** Runs `orc …`, which must succeed. */
  orc(...args: string[]): Promise<string>;
  /** Creates an automation and returns its key. */
  create(slug: string, ...options: string[]): Promise<string>;
  /** Triggers a run over HTTP and returns its id. */
  trigger(slug: string, apiKey: string, payload?: object): Promise<string>;
  /** What `orc runs logs` has printed by now, to standard output and to standard error. */
  logs(runId: string): Promise<string>;
  /** Waits for the end of a run. */
  see(runId: string): Promise<SeenRun>;
  /** Kills the worker, without a chance to end anything. */
  killWorker(): Promise<void>;
  startWorker(): Promise<void>;
}

/** The whole way of a run: an API and a worker as processes, callers and an operator. It is there until the test has ended. */
export async function openAgentStage(workerEnv: NodeJS.ProcessEnv, timing?: LockTiming): Promise<AgentStage> {
  const store = openTestStore();
  const env = { ...store.env, ...workerEnv };
  const start = () => (timing ? startTimedWorker(env, timing) : startWorkerProcess(env));
  const starting = [startApiProcess(store.env), start()] as const;
  atEnd(async () => Promise.all([api.stop(), worker.stop()]));
  const api = await starting[0];
  let worker = await starting[1];
  const run = (args: string[]) => runOrc(args, { env: store.env });
  const orc = async (...args: string[]) => {
    const { code, stdout, stderr } = await run(args);
    expect([code, stderr]).toEqual([0, '']);
    return stdout;
  };
  const logs = async (runId: string) => {
    const { stdout, stderr } = await run(['runs', 'logs', runId]);
    return stdout + stderr;
  };
  return {
    orc,
    logs,
    create: async (slug, ...options) =>
      (await orc('automations', 'create', slug, '--quiet', ...options)).trim(),
    trigger: async (slug, apiKey, payload = {}) => {
      const { status, body } = await postTrigger(api.url, slug, apiKey, JSON.stringify(payload));
      expect(status).toBe(202);
      return String(body['runId']);
    },
    see: async (runId) => {
      await run(['runs', 'watch', runId]);
      return { shown: await orc('runs', 'show', runId), logs: await logs(runId) };
    },
    killWorker: async () => {
      await worker.stop('SIGKILL');
    },
    startWorker: async () => {
      worker = await start();
    },
  };
}
