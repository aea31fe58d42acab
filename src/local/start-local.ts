import { once } from 'node:events';
import { createServer } from 'node:net';
import type { Config } from '../config.ts';
import type { AutomationDefinition } from '../core/automation.ts';
import type { CreatedAutomation } from '../store/automations.ts';
import { connect, type RedisClient } from '../store/connect.ts';
import { createStore, type Store } from '../store/store.ts';
import { type LogRecord, startOrcChild } from './child.ts';
import { type ClaimedFolder, claimDataFolder } from './claim-data-folder.ts';
import { DataFolderError } from './data-folder.ts';
import { findRedisServer } from './find-redis-server.ts';
import { startRedisServer } from './redis-server.ts';

/** The automation that the first start creates: it prints its payload. */
const HELLO: AutomationDefinition = {
  slug: 'hello',
  name: 'Says hello with the payload of its trigger',
  enabled: true,
  action: {
    type: 'command',
    argv: ['sh', '-c', 'echo "Hello from run $ORC_RUN_ID, your payload is $(cat)"'],
    env: {},
    passEnv: [],
  },
  attempts: 1,
  onWorkerLoss: 'rerun',
};

export interface LocalOptions {
  config: Config;
  env: Readonly<NodeJS.ProcessEnv>;
  /** Directory of the data folder. */
  directory: string;
  /** The state folder, which records this user's data folders. */
  stateDir: string;
  /** Also accept a data folder that the state folder does not know. */
  trust: boolean;
  /** Called with the progress of the start, for people. */
  report(message: string): void;
  /** Called with each log line of the API and the worker, and with the first line of output of an ended run. */
  onRecord(record: LogRecord, output: string | undefined): void;
}

export interface RunningLocal {
  apiUrl: string;
  /** The automation that this start created, if there was none. */
  hello: CreatedAutomation | undefined;
  /** Resolves with a sentence when a process has ended by itself. */
  failed: Promise<string>;
  /** Stops everything in order; the data stays. Idempotent. */
  close(): Promise<void>;
}

/**
 * Starts a private Redis, the API and a worker as separate processes, with their data in `.orc`.
 *
 * @throws an error of one sentence; then nothing is left running
 */
export async function startLocal(options: LocalOptions): Promise<RunningLocal> {
  const { config, env, directory, stateDir, trust, report } = options;
  let apiUrl: string | undefined;
  const status = () => ({ pid: process.pid, apiUrl });
  const folder = await claimDataFolder({ directory, stateDir, trust, status });

  // Closed in reverse order.
  const opened: (() => Promise<void>)[] = [folder.release];
  let closing: Promise<void> | undefined;
  const close = () => {
    closing ??= (async () => {
      apiUrl = undefined;
      for (const undo of opened.reverse()) await undo();
    })();
    return closing;
  };

  try {
    await checkPort(config.HOST, config.PORT);
    const server = await findRedisServer({ env, report });
    const { dataDir, socketDir } = folder;
    const redisServer = await startRedisServer({ server, dataDir, socketDir, persistence: 'always' });
    opened.push(() => redisServer.stop());
    const redis = connect(redisServer.url, 'patient', () => undefined);
    const store = createStore(redis, config.REDIS_PREFIX, () => undefined);
    opened.push(() => store.close());
    await checkFolderInUse(redis, folder);
    const hello = await createHello(store);

    const childEnv = { ...env, REDIS_URL: redisServer.url, REDIS_URL_FILE: '', LOG_LEVEL: 'info' };
    const onRecord = (record: LogRecord) => {
      void latestOutput(store, record).then((output) => options.onRecord(record, output));
    };
    const { OPS_PORT } = config;
    const workerOps = OPS_PORT && { OPS_PORT: `${OPS_PORT + 1}` };
    const worker = startOrcChild('worker', { ...childEnv, ...workerOps }, onRecord);
    const api = startOrcChild('api', childEnv, onRecord);
    opened.push(async () => {
      await Promise.all([api.stop(), worker.stop()]);
    });
    await Promise.all([api.ready, worker.ready]);

    apiUrl = config.PUBLIC_URL ?? `http://${config.HOST}:${config.PORT}`;
    await folder.announce();

    const failed = new Promise<string>((resolve) => {
      const tell = (how: string) => {
        if (!closing) resolve(how);
      };
      void api.ended.then(tell);
      void worker.ended.then(tell);
      void redisServer.exited.then(() => tell('The private Redis has ended.'));
    });
    return { apiUrl, hello, failed, close };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Checks that the port is free before anything starts. */
async function checkPort(host: string, port: number): Promise<void> {
  const probe = createServer();
  try {
    probe.listen(port, host);
    await once(probe, 'listening');
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new Error(
      code === 'EADDRINUSE'
        ? `Port ${port} is in use by another program. Choose another one: PORT=${port + 1} npm start`
        : `Cannot listen on ${host}, port ${port}: ${(error as Error).message}. Change HOST or PORT.`,
      { cause: error },
    );
  } finally {
    probe.close();
  }
}

/**
 * Checks that Redis works in the data folder: a user who may write to a directory above it can replace it after the first
 * check. Redis reports its real working directory.
 */
async function checkFolderInUse(redis: RedisClient, folder: ClaimedFolder): Promise<void> {
  const [, workingDir] = (await redis.config('GET', 'dir')) as string[];
  if (workingDir === folder.dataDir && (await folder.isInPlace())) return;
  throw new DataFolderError(
    `${folder.dataDir} was replaced by another folder while Redis started. Use a folder that nobody else can write to.`,
  );
}

async function createHello(store: Store): Promise<CreatedAutomation | undefined> {
  if ((await store.automations.slugs()).length > 0) return undefined;
  const created = await store.automations.create(HELLO);
  return created.status === 'created' ? created : undefined;
}

/** The first line that an ended run printed to its standard output. */
async function latestOutput(store: Store, { msg, runId }: LogRecord): Promise<string | undefined> {
  if (msg !== 'run ended' || typeof runId !== 'string') return undefined;
  try {
    const { entries } = await store.runLogs.read(runId);
    const text = Buffer.concat(entries.filter(({ source }) => source === 'stdout').map(({ data }) => data));
    return text.toString('utf8').split('\n', 1)[0] || undefined;
  } catch {
    return undefined;
  }
}
