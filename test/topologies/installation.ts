import { randomUUID } from 'node:crypto';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, onTestFinished } from 'vitest';
import {
  type OrcProcess,
  runOrcProcess,
  startApiProcess,
  startWorkerProcess,
} from '../support/orc-process.ts';

/** An API process and a worker process at a Redis, as in production, and what a test needs to look at them. */
export interface Installation {
  env: NodeJS.ProcessEnv;
  api: OrcProcess & { url: string };
  worker: OrcProcess;
  /** Runs `orc …`, which has to succeed; returns what it printed. */
  orc(...args: string[]): Promise<string>;
  /** Creates an automation whose runs append lines to a file with shell commands; returns its key and the file. */
  createWriter(slug: string, options: string[], code: string): Promise<Writer>;
}

export interface Writer {
  slug: string;
  key: string;
  lines(): Promise<string[]>;
}

/**
 * Starts both, to be ended with the test.
 *
 * @param env has REDIS_URL and REDIS_PREFIX
 */
export async function openInstallation(env: NodeJS.ProcessEnv): Promise<Installation> {
  const [api, worker] = await Promise.all([startApiProcess(env), startWorkerProcess(env)]);
  onTestFinished(async () => {
    await Promise.all([api.stop(), worker.stop()]);
  });
  const orc = async (...args: string[]) => {
    const { code, stdout, stderr } = await runOrcProcess(args, { env });
    expect([code, stderr]).toEqual([0, expect.any(String)]);
    return stdout;
  };
  return {
    env,
    api,
    worker,
    orc,
    createWriter: async (slug, options, code) => {
      const file = join(folder, `${slug}-${randomUUID()}`);
      const create = ['automations', 'create', slug, '--quiet', '--env', `FILE=${file}`, ...options];
      const key = (await orc(...create, '--', 'sh', '-c', code)).trim();
      const lines = async () => (await readFile(file, 'utf8').catch(() => '')).split('\n').slice(0, -1);
      return { slug, key, lines };
    },
  };
}

/** Waits until the worker says that a run has succeeded. */
export async function untilSucceeded({ worker }: Installation, runId: unknown): Promise<void> {
  const ended = await worker.record((record) => record.msg === 'run ended' && record['runId'] === runId);
  expect(ended['status']).toBe('succeeded');
}

const folder = await mkdtemp(join(tmpdir(), 'orc-topology-'));

afterAll(() => rm(folder, { recursive: true, force: true }));
