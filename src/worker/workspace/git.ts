import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { withDeadline } from '../../core/deadline.ts';
import { maskUrls } from '../../core/masked-url.ts';
import { LastLine } from '../last-line.ts';
import { type RunMark, signalGroup } from '../run-processes.ts';
import { SecretMask } from '../secret-mask.ts';

/** How long one git command may take, in milliseconds. */
const GIT_TIMEOUT_MS = 600_000;

/** Between the TERM and the KILL of a git command that must end, in milliseconds: time to remove its lock files. */
const TERMINATION_GRACE_MS = 1000;

/** After its exit, the outputs of a git command are waited for this long, in milliseconds: a helper may hold them open. */
const OUTPUT_DRAIN_MS = 1000;

/** How much a git command may print, in bytes, unless its caller says otherwise. */
const MAX_OUTPUT_BYTES = 256 * 1024 * 1024;

/** How much is held of the errors of a git command, in bytes. */
const MAX_ERROR_BYTES = 65_536;

/** What git says after the reason that its transport, or a file, told. */
const ADVICE =
  /(?:error: unable to (?:add|index) [^\n]*\s+)?fatal: adding files failed\s*$|fatal: Could not read from remote repository\.\s+Please make sure you have the correct access rights\s+and the repository exists\.\s*$/;

/** What git is told for every command, whatever a repository, a user or the system has configured. */
const SETTINGS = [
  // Nothing that a repository brings is executed.
  'core.hooksPath=/dev/null',
  'core.fsmonitor=false',
  'core.attributesFile=/dev/null',
  'core.excludesFile=/dev/null',
  'core.pager=cat',
  'protocol.ext.allow=never',
  'submodule.recurse=false',
  'fetch.recurseSubmodules=false',
  'push.recurseSubmodules=no',
  'log.showSignature=false',
  'push.gpgSign=false',
  // Files are as they are in the repository.
  'core.autocrlf=false',
  'core.fileMode=true',
  'core.symlinks=true',
  // Nothing is started in the background; objects come and stay in packs.
  'gc.auto=0',
  'maintenance.auto=false',
  'fetch.unpackLimit=1',
  'fetch.writeCommitGraph=false',
  // A connection that stands still ends.
  'http.lowSpeedLimit=1000',
  'http.lowSpeedTime=60',
];

/** Variables of the worker that git gets where it reaches other machines. */
const NETWORK_VARIABLES = [
  ...['HOME', 'XDG_CONFIG_HOME', 'SSH_AUTH_SOCK', 'SSL_CERT_FILE', 'SSL_CERT_DIR'],
  ...['http_proxy', 'https_proxy', 'no_proxy', 'all_proxy', 'HTTPS_PROXY', 'NO_PROXY', 'ALL_PROXY'],
];

export interface GitCall {
  /** Ends the command when it aborts. */
  signal: AbortSignal;
  gitDir?: string;
  workTree?: string;
  /** On standard input. */
  input?: string | Buffer;
  /** More variables, such as the author of a commit. */
  env?: Readonly<Record<string, string>>;
  /**
   * Names of variables of the worker that git gets to reach other machines, with its SSH agent, its user's and system's
   * configuration of git, and so its credential helpers. Without it git has none of this.
   */
  credentials?: readonly string[];
  /** Bytes of output from which on the command is ended. */
  maxBytes?: number;
}

export type GitResult =
  | { status: 'done'; stdout: Buffer }
  /** `detail` is one line for people; `stderr` is for finding out more. Both are without secrets. */
  | { status: 'failed'; detail: string; stdout: Buffer; stderr: string }
  | { status: 'too_large' }
  | { status: 'missing' }
  | { status: 'interrupted' };

/** Runs one git command. */
export type Git = (args: readonly string[], call: GitCall) => Promise<GitResult>;

/**
 * The worker's git. It asks nobody, runs no hooks, and reads configuration of the user and the system only where it
 * reaches other machines; every command leads a process group that ends when it must.
 *
 * @param environment the worker's own
 * @param workerId what the guard finds git by when the worker has died
 */
export function openGit(environment: Readonly<NodeJS.ProcessEnv>, workerId: string): Git {
  return async (args, call) => {
    if (call.signal.aborted) return { status: 'interrupted' };
    const { gitDir, workTree, credentials } = call;
    const secrets = (credentials ?? []).map((name) => environment[name] ?? '');
    const places = [
      ...(gitDir === undefined ? [] : [`--git-dir=${gitDir}`]),
      ...(workTree === undefined ? [] : [`--work-tree=${workTree}`]),
    ];
    const child = spawn('git', [...SETTINGS.flatMap((each) => ['-c', each]), ...places, ...args], {
      // Git goes into the work tree by itself. A folder that is missing would look as if git were.
      cwd: '/',
      env: { ...variablesFor(environment, credentials), ...call.env, ORC_WORKER: workerId },
      detached: true,
      stdio: 'pipe',
    });
    return complete(child, args[0] ?? '', call, new SecretMask(secrets));
  };
}

/** A git whose commands the guard takes for those of one attempt, and ends when the worker is frozen. */
export function gitOfAttempt(git: Git, mark: RunMark): Git {
  return (args, call) => git(args, { ...call, env: { ...call.env, ...mark } });
}

function variablesFor(
  environment: Readonly<NodeJS.ProcessEnv>,
  credentials: readonly string[] | undefined,
): NodeJS.ProcessEnv {
  const names = ['PATH', 'LD_LIBRARY_PATH', ...(credentials ? [...NETWORK_VARIABLES, ...credentials] : [])];
  const taken = names.map((name) => [name, environment[name]]).filter(([, value]) => value !== undefined);
  return {
    ...Object.fromEntries(taken),
    ...(credentials === undefined && { GIT_CONFIG_NOSYSTEM: '1', GIT_CONFIG_GLOBAL: '/dev/null' }),
    // Its messages are read here.
    LC_ALL: 'C',
    GIT_TERMINAL_PROMPT: '0',
    GIT_ALLOW_PROTOCOL: 'file:git:http:https:ssh',
    GIT_ATTR_NOSYSTEM: '1',
    GIT_LITERAL_PATHSPECS: '1',
    GIT_NO_REPLACE_OBJECTS: '1',
  };
}

async function complete(
  child: ChildProcess & { stdin: NodeJS.WritableStream },
  command: string,
  { signal, input, maxBytes = MAX_OUTPUT_BYTES }: GitCall,
  mask: SecretMask,
): Promise<GitResult> {
  const exited = once(child, 'exit');
  const closed = once(child, 'close');
  closed.catch(() => undefined);
  const { pid: group } = child;
  if (group === undefined) return whyNotStarted(exited, command);

  let why: 'interrupted' | 'too_large' | 'timeout' | undefined;
  let kill: NodeJS.Timeout | undefined;
  const end = (reason: typeof why) => {
    if (why !== undefined) return;
    why = reason;
    signalGroup(group, 'SIGTERM');
    kill = setTimeout(() => signalGroup(group, 'SIGKILL'), TERMINATION_GRACE_MS);
  };
  const limit = setTimeout(() => end('timeout'), GIT_TIMEOUT_MS);
  const interrupt = () => end('interrupted');
  signal.addEventListener('abort', interrupt, { once: true });

  const output: Buffer[] = [];
  let outputBytes = 0;
  child.stdout?.on('data', (data: Buffer) => {
    outputBytes += data.length;
    if (outputBytes > maxBytes) end('too_large');
    else output.push(data);
  });
  let errors = Buffer.alloc(0);
  child.stderr?.on('data', (data: Buffer) => {
    errors = Buffer.from(Buffer.concat([errors, data]).subarray(-MAX_ERROR_BYTES));
  });
  child.stdin.on('error', () => undefined);
  child.stdin.end(input ?? '');
  try {
    const [code, killedBy] = await exited;
    if (why !== undefined) signalGroup(group, 'SIGKILL');
    await withDeadline(closed, OUTPUT_DRAIN_MS).catch(() => undefined);
    child.stdout?.destroy();
    child.stderr?.destroy();
    const stdout = Buffer.concat(output);
    const stderr = mask.text(maskUrls(errors.toString()));
    if (why === 'interrupted' || why === 'too_large') return { status: why };
    if (code === 0 && why === undefined) return { status: 'done', stdout };
    const how = killedBy === null ? `ended with exit code ${code}` : `was ended by ${killedBy}`;
    const detail =
      why === 'timeout'
        ? `git ${command} took longer than ${GIT_TIMEOUT_MS / 1000} s and was ended`
        : (reasonIn(stderr) ?? `git ${command} ${how}`);
    return { status: 'failed', detail, stdout, stderr };
  } finally {
    clearTimeout(limit);
    clearTimeout(kill);
    signal.removeEventListener('abort', interrupt);
  }
}

/** The last line of errors in which secrets are hidden already: it may be cut, and leave a part of one. */
function reasonIn(errors: string): string | undefined {
  const line = new LastLine();
  line.add(Buffer.from(errors.replace(ADVICE, '').trim() || errors));
  return line.text();
}

async function whyNotStarted(exited: Promise<unknown>, command: string): Promise<GitResult> {
  try {
    await exited;
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT') return { status: 'missing' };
    return failed(`git ${command} could not be started: ${message}`);
  }
  return failed(`git ${command} could not be started`);
}

function failed(detail: string): GitResult {
  return { status: 'failed', detail, stdout: Buffer.alloc(0), stderr: '' };
}
