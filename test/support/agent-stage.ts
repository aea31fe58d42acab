import { expect } from 'vitest';
import { postTrigger } from './http.ts';
import { runOrc } from './orc.ts';
import { type OrcProcess, startApiProcess, startWorkerProcess } from './orc-process.ts';
import { openTestStore } from './store.ts';

/** What an operator sees of a run that has ended. */
export interface SeenRun {
  runId: string;
  /** `orc runs show` */
  shown: string;
  /** `orc runs logs`, with what it prints to standard error. */
  logs: string;
}

export interface AgentStage {
  store: ReturnType<typeof openTestStore>;
  worker: OrcProcess;
  /** Creates an automation with an agent, as an operator does, and returns its key. */
  create(slug: string, ...options: string[]): Promise<string>;
  /** Triggers a run, as a caller does, and returns its id. */
  trigger(slug: string, apiKey: string, payload?: object): Promise<string>;
  /** Runs `orc …` with these arguments; it must succeed. */
  orc(...args: string[]): Promise<string>;
  /** Waits for the end of a run. */
  see(runId: string): Promise<SeenRun>;
  startWorker(): Promise<OrcProcess>;
  close(): Promise<void>;
}

/** The whole way of a run: an API and a worker as processes, a caller with curl's request, and an operator with a terminal. */
export async function openAgentStage(workerEnv: NodeJS.ProcessEnv): Promise<AgentStage> {
  const store = openTestStore();
  const env = { ...store.env, ...workerEnv };
  const startWorker = () => startWorkerProcess(env);
  const [api, worker] = await Promise.all([startApiProcess(store.env), startWorker()]);
  const run = (args: string[]) => runOrc(args, { env: store.env });
  const orc = async (...args: string[]) => {
    const { code, stdout, stderr } = await run(args);
    expect([code, stderr]).toEqual([0, '']);
    return stdout;
  };
  return {
    store,
    worker,
    orc,
    create: async (slug, ...options) =>
      (await orc('automations', 'create', slug, '--quiet', ...options)).trim(),
    trigger: async (slug, apiKey, payload = {}) => {
      const { status, body } = await postTrigger(api.url, slug, apiKey, JSON.stringify(payload));
      expect(status).toBe(202);
      return String(body['runId']);
    },
    see: async (runId) => {
      await run(['runs', 'watch', runId]);
      const { stdout, stderr } = await run(['runs', 'logs', runId]);
      return { runId, shown: await orc('runs', 'show', runId), logs: stdout + stderr };
    },
    startWorker,
    close: async () => {
      await Promise.all([api.stop(), worker.stop()]);
    },
  };
}
