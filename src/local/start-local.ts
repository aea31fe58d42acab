import { once } from 'node:events';
import { createServer } from 'node:net';
import type { Config } from '../config.ts';
import type { AutomationDefinition } from '../core/automation.ts';
import { withDeadline } from '../core/deadline.ts';
import { isOperatorName } from '../core/operator.ts';
import { thisOperator } from '../core/this-operator.ts';
import { auditedStore } from '../store/audited-store.ts';
import type { CreatedAutomation } from '../store/automations.ts';
import { connect, type RedisClient } from '../store/connect.ts';
import { createStore, type Store } from '../store/store.ts';
import { type LogRecord, startOrcChild } from './child.ts';
import { type ClaimedFolder, claimDataFolder } from './claim-data-folder.ts';
import { DataFolderError } from './data-folder.ts';
import { findRedisServer } from './find-redis-server.ts';
import { endOfRedisLog, startRedisServer } from './redis-server.ts';

/** A child's log comes by another way than that it is ready, and so perhaps a moment later, in milliseconds. */
const LOG_DEADLINE_MS = 5000;

/** The highest port there is. */
const MAX_PORT = 65_535;

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
  /** Called with each log line of the API, the worker and the console, and with the first line of output of an ended run. */
  onRecord(record: LogRecord, output: string | undefined): void;
}

export interface RunningLocal {
  apiUrl: string;
  /** Where the private Redis is; a value for REDIS_URL. */
  redisUrl: string;
  /** Logs an admin in to the console, once. */
  loginLink: string;
  /** The automation that this start created, if there was none. */
  hello: CreatedAutomation | undefined;
  /** Resolves with a sentence when a process has ended by itself. */
  failed: Promise<string>;
  /** Stops everything in order; the data stays. Idempotent. */
  close(): Promise<void>;
}

/**
 * Starts a private Redis, the API, a worker and the console as separate processes, with their data in `.orc`.
 *
 * @throws an error of one sentence; then nothing is left running
 */
export async function startLocal(options: LocalOptions): Promise<RunningLocal> {
  const { config, env, directory, stateDir, trust, report } = options;
  let apiUrl: string | undefined;
  let consoleUrl: string | undefined;
  const status = () => ({ pid: process.pid, apiUrl, consoleUrl });
  const folder = await claimDataFolder({ directory, stateDir, trust, status });

  // Closed in reverse order.
  const opened: (() => Promise<void>)[] = [folder.release];
  let closing: Promise<void> | undefined;
  const close = () => {
    closing ??= (async () => {
      apiUrl = undefined;
      consoleUrl = undefined;
      for (const undo of opened.reverse()) await undo();
    })();
    return closing;
  };

  try {
    const consolePort = consolePortOf(config, env);
    await checkPort(config.HOST, config.PORT, '');
    await checkPort(config.CONSOLE_HOST, consolePort, 'CONSOLE_');
    const server = await findRedisServer({ env, report });
    const { dataDir, socketDir } = folder;
    const redisServer = await startRedisServer({ server, dataDir, socketDir, persistence: 'always' });
    opened.push(() => redisServer.stop());
    const redis = connect(redisServer.url, 'patient', () => undefined);
    const plainStore = createStore(redis, config.REDIS_PREFIX, () => undefined);
    const store = auditedStore(plainStore, thisOperator(), () => undefined);
    opened.push(() => store.close());
    await checkFolderInUse(redis, folder);
    const hello = await createHello(store);

    const childEnv = { ...env, REDIS_URL: redisServer.url, REDIS_URL_FILE: '', LOG_LEVEL: 'info' };
    let onListening: (url: string) => void = () => undefined;
    const listening = new Promise<string>((resolve) => {
      onListening = resolve;
    });
    const onRecord = (record: LogRecord) => {
      if (record.msg === 'console listens') onListening(String(record['url']));
      void firstOutputLine(store, record).then((output) => options.onRecord(record, output));
    };
    const { OPS_PORT } = config;
    const opsAt = (offset: number) => OPS_PORT && { OPS_PORT: `${OPS_PORT + offset}` };
    const worker = startOrcChild('worker', { ...childEnv, ...opsAt(1) }, onRecord);
    const api = startOrcChild('api', childEnv, onRecord);
    const consoleEnv = { ...childEnv, CONSOLE_PORT: `${consolePort}`, ...opsAt(2) };
    const operatorsConsole = startOrcChild('console', consoleEnv, onRecord);
    const children = [api, worker, operatorsConsole];
    opened.push(async () => {
      await Promise.all(children.map((child) => child.stop()));
    });
    await Promise.all(children.map((child) => child.ready));

    consoleUrl = (config.CONSOLE_URL ?? (await withDeadline(listening, LOG_DEADLINE_MS))).replace(/\/$/, '');
    apiUrl = config.PUBLIC_URL ?? `http://${config.HOST}:${config.PORT}`;
    await folder.announce();
    const loginLink = `${consoleUrl}/login/${await createLoginToken(store)}`;

    const failed = new Promise<string>((resolve) => {
      const tell = (how: string) => {
        if (!closing) resolve(how);
      };
      for (const child of children) void child.ended.then(tell);
      void redisServer.exited.then(async () =>
        tell(`The private Redis has ended; its log ends with: ${await endOfRedisLog(folder.dataDir)}.`),
      );
    });
    return { apiUrl, redisUrl: redisServer.url, loginLink, hello, failed, close };
  } catch (error) {
    await close();
    throw error;
  }
}

/** CONSOLE_PORT, or else the one behind the API's, so that two of these can run on one machine. */
function consolePortOf({ CONSOLE_PORT, PORT }: Config, env: Readonly<NodeJS.ProcessEnv>): number {
  if (env['CONSOLE_PORT']) return CONSOLE_PORT;
  return PORT === 0 || PORT === MAX_PORT ? 0 : PORT + 1;
}

/** Not the next one, which may be the console of the program that is in the way. */
function portBeside(port: number): number {
  return port + 10 < MAX_PORT ? port + 10 : port - 10;
}

/**
 * Checks that a port is free before anything listens.
 *
 * @param prefix of the variables HOST and PORT that set the address
 */
async function checkPort(host: string, port: number, prefix: '' | 'CONSOLE_'): Promise<void> {
  const probe = createServer();
  try {
    probe.listen(port, host);
    await once(probe, 'listening');
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new Error(
      code === 'EADDRINUSE'
        ? `Port ${port} is in use by another program. Choose another one, such as ${prefix}PORT=${portBeside(port)}.`
        : `Cannot listen on ${host}, port ${port}: ${(error as Error).message}. Change ${prefix}HOST or ${prefix}PORT.`,
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

/**
 * Makes a token that logs in once: as the operator with the name of this user, or else as the first admin. Without any operator,
 * this user becomes one.
 */
async function createLoginToken({ operators }: Store): Promise<string> {
  const { user } = thisOperator();
  const name = isOperatorName(user) ? user : 'admin';
  const all = await operators.list();
  if (all.length === 0) await operators.add(name, 'admin');
  const admins = all.filter(({ role }) => role === 'admin').map((admin) => admin.name);
  const chosen = all.length === 0 || admins.includes(name) ? name : (admins[0] ?? name);
  const link = await operators.createLink(chosen);
  return link?.token ?? '';
}

/** The first line that an ended run printed to its standard output. */
async function firstOutputLine(store: Store, { msg, runId }: LogRecord): Promise<string | undefined> {
  if (msg !== 'run ended' || typeof runId !== 'string') return undefined;
  try {
    const { entries } = await store.runLogs.read(runId);
    const text = Buffer.concat(entries.filter(({ source }) => source === 'stdout').map(({ data }) => data));
    return text.toString('utf8').split('\n', 1)[0] || undefined;
  } catch {
    return undefined;
  }
}
