import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ROOT, readProjectFile } from './repository.ts';

/** What a Dockerfile makes, on top of this machine's system instead of the base image. */
export interface Image {
  /** Folder that holds what was added to the system. */
  layer: string;
  env: Record<string, string>;
  directory: string;
  user: string;
  entrypoint: string[];
  command: string[];
  healthcheck: string[];
}

interface Stage extends Image {
  name: string | undefined;
  /** What its commands are given while it is built. */
  args: Record<string, string>;
}

/** Whether this machine lets us put folders on top of its system, as an engine for containers does. */
export function canBuildImages(): boolean {
  try {
    execFileSync('unshare', ['--mount', '--pid', '--fork', 'sh', '-c', 'command -v setpriv apt-get npm'], {
      stdio: 'ignore',
    });
    return process.getuid?.() === 0;
  } catch {
    console.warn('SKIPPED: the image is built with namespaces and apt, by root, which this machine lacks.');
    return false;
  }
}

/**
 * Carries out the project's Dockerfile in a folder, without an engine: each RUN in a root filesystem that is this
 * machine's, with what the stage has added on top and without the project's folder.
 *
 * @returns the image of each target; without a name, that of the last stage
 * @throws when a step fails, or is of a kind that is not known here
 */
export async function buildImages(folder: string): Promise<(target?: string) => Image> {
  const stages: Stage[] = [];
  const args = new Map<string, string>();
  for (const { instruction, rest } of instructionsOf(readProjectFile('Dockerfile'))) {
    const value = rest.replace(/\$\{(\w+)\}/g, (text, name) => args.get(name) ?? text);
    const stage = stages.at(-1);
    if (instruction === 'ARG') {
      const [name = '', fallback = ''] = value.split('=');
      args.set(name, fallback);
      if (stage) stage.args = { ...stage.args, [name]: fallback };
    } else if (instruction === 'FROM') {
      stages.push(await newStage(folder, stages, value));
    } else {
      if (!stage) throw new Error(`${instruction} comes before FROM`);
      await carryOut(stage, stages, instruction, instruction === 'RUN' ? rest : value);
    }
  }
  return (target) => {
    const image = target === undefined ? stages.at(-1) : stages.find(({ name }) => name === target);
    if (!image) throw new Error(`The Dockerfile has no stage ${target ?? ''}`);
    return image;
  };
}

interface Instruction {
  instruction: string;
  rest: string;
}

function instructionsOf(dockerfile: string): Instruction[] {
  const lines = dockerfile
    .split('\n')
    .filter((line) => !line.startsWith('#'))
    .join('\n')
    .replaceAll('\\\n', ' ')
    .split('\n')
    .filter((line) => line.trim() !== '');
  return lines.map((line) => {
    const [, instruction = '', rest = ''] = /^(\S+)\s+(.*)$/.exec(line) ?? [];
    return { instruction, rest };
  });
}

async function newStage(folder: string, stages: readonly Stage[], value: string): Promise<Stage> {
  const [from, , name] = value.split(/\s+/);
  const parent = stages.find((stage) => stage.name === from);
  const layer = join(folder, `stage-${stages.length}`, 'layer');
  await mkdir(layer, { recursive: true });
  await mkdir(join(layer, '../root'));
  // The kernel puts no two folders of one file system on top of each other and of that file system.
  if (parent) execFileSync('cp', ['--archive', `${parent.layer}/.`, layer]);
  const { PATH = '' } = process.env;
  const base = { env: { PATH }, directory: '/', user: '0:0', entrypoint: [], command: [], healthcheck: [] };
  return { ...base, ...parent, args: {}, layer, name };
}

async function carryOut(stage: Stage, stages: readonly Stage[], instruction: string, rest: string) {
  switch (instruction) {
    case 'WORKDIR':
      stage.directory = rest;
      return inside(stage, ['mkdir', '-p', rest]);
    case 'RUN':
      return inside(stage, ['sh', '-c', `cd "$1" && ${rest}`, 'sh', stage.directory]);
    case 'COPY':
      return copy(stage, stages, rest.split(/\s+/));
    case 'ENV':
      for (const pair of rest.split(/\s+/)) {
        const [name = '', value = ''] = pair.split('=');
        stage.env = { ...stage.env, [name]: value };
      }
      return;
    case 'USER':
      stage.user = rest;
      return;
    case 'ENTRYPOINT':
      stage.entrypoint = JSON.parse(rest);
      return;
    case 'CMD':
      stage.command = JSON.parse(rest);
      return;
    case 'HEALTHCHECK':
      stage.healthcheck = JSON.parse(rest.replace(/^.*?CMD /, ''));
      return;
    case 'EXPOSE':
    case 'STOPSIGNAL':
      return;
    default:
      throw new Error(`${instruction} is not known here`);
  }
}

async function copy(stage: Stage, stages: readonly Stage[], words: string[]): Promise<void> {
  const destination = join(stage.directory, words.at(-1) ?? '');
  const from = /^--from=(.*)$/.exec(words[0] ?? '')?.[1];
  const source = stages.find(({ name }) => name !== undefined && name === from);
  for (const path of words.slice(from === undefined ? 0 : 1, -1)) {
    // A layer holds a folder that only its stage has in full.
    const absolute = source ? join(source.layer, path) : await inContext(path);
    // Of a folder, what is in it is copied.
    const script =
      'mkdir -p "$(dirname "$2x")" && if [ -d "$1" ]; then cp -a "$1/." "$2"; else cp -a "$1" "$2"; fi';
    execFileSync('sh', ['-c', script, 'sh', absolute, join(stage.layer, destination)]);
  }
}

/** A path that the build is given, which .dockerignore decides: nothing but what it names. */
async function inContext(path: string): Promise<string> {
  const [first, ...allowed] = (await readFile(join(ROOT, '.dockerignore'), 'utf8')).trim().split('\n');
  if (first !== '*' || !allowed.includes(`!${path}`)) throw new Error(`.dockerignore keeps ${path} out`);
  return join(ROOT, path);
}

/**
 * Mounts a root filesystem at $root with what $layer adds to this machine's; the project's folder is empty in it. Of two
 * containers that start at once with one working directory, the kernel refuses one now and then.
 */
const MOUNT = `
  set -e
  work=$(mktemp -d "$layer/../work.XXXXXX")
  mount -t overlay overlay -o "lowerdir=/,upperdir=$layer,workdir=$work,index=off,$mode" "$root"
  mount --rbind /dev "$root/dev"
  mount -t tmpfs tmpfs "$root$project"
  mount -t tmpfs tmpfs "$root/tmp"
  chmod 1777 "$root/tmp"`;

function mountOf({ layer }: Image, mode: 'ro' | 'rw'): NodeJS.ProcessEnv {
  return { layer, mode, root: join(layer, '../root'), project: ROOT };
}

/** Executes a command of the build in the stage's root filesystem. */
function inside(stage: Stage, command: string[]): void {
  const script = `
    ${MOUNT}
    mount --rbind /proc "$root/proc"
    exec chroot "$root" "$@"`;
  execFileSync('unshare', ['--mount', 'sh', '-c', script, 'sh', ...command], {
    env: { ...buildEnvironment(), ...stage.env, ...stage.args, ...mountOf(stage, 'rw') },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
}

/** What an npm that started the tests, or the tests' own environment, says is not for the npm of the image. */
function buildEnvironment(): NodeJS.ProcessEnv {
  const entries = Object.entries(process.env).filter(
    ([name]) => !/^npm_(?!config_registry)|^(NODE_ENV|VITEST.*|TEST)$/.test(name),
  );
  return Object.fromEntries(entries);
}

/** A container: what was started is process 1 of its own processes, and its root filesystem is read-only but for /tmp. */
export interface Container {
  /** Of process 1, as this machine knows it. */
  pid: number;
  stdout(): string;
  /** Resolves with the exit code. */
  exited: Promise<number>;
  kill(signal: NodeJS.Signals): void;
}

const started = new Set<ChildProcess>();

/** Ends what is left. */
export function killContainers(): void {
  for (const child of started) child.kill('SIGKILL');
}

/**
 * Starts a container as an engine with `--read-only --tmpfs /tmp:exec --cap-drop ALL` would.
 *
 * @param args.volumes folders of this machine, by where they are in the container; with the owner and the mode of what the image has there, as a new volume
 */
export async function startContainer(
  image: Image,
  args: {
    env?: Record<string, string>;
    command?: string[];
    entrypoint?: string[];
    user?: string;
    volumes?: Record<string, string>;
  },
): Promise<Container> {
  const [uid = '', gid = ''] = (args.user ?? image.user).split(':');
  const env = Object.entries({ HOME: '/tmp', ...image.env, ...args.env }).map(
    ([name, value]) => `${name}=${value}`,
  );
  const volumes = Object.entries(args.volumes ?? {}).flatMap(([place, folder]) => [
    `if [ -d "$root${place}" ]; then chown --reference="$root${place}" '${folder}'; chmod --reference="$root${place}" '${folder}'`,
    `else mkdir -p "$root${place}"; fi`,
    `mount --bind '${folder}' "$root${place}"`,
  ]);
  const script = `
    ${MOUNT}
    mount -t proc proc "$root/proc"
    ${volumes.join('\n    ')}
    exec chroot "$root" setpriv --reuid ${uid} --regid ${gid} --clear-groups --bounding-set=-all --no-new-privs \\
      sh -c 'cd "$0" && exec env -i "$@"' "$@"`;
  const command = [...(args.entrypoint ?? image.entrypoint), ...(args.command ?? image.command)];
  const namespaces = ['--mount', '--pid', '--fork', '--kill-child'];
  const child = spawn(
    'unshare',
    [...namespaces, 'sh', '-c', script, 'sh', image.directory, ...env, ...command],
    {
      env: { PATH: process.env['PATH'], ...mountOf(image, 'ro') },
      stdio: ['ignore', 'pipe', 'inherit'],
    },
  );
  started.add(child);
  let stdout = '';
  child.stdout.setEncoding('utf8').on('data', (text) => {
    stdout += text;
  });
  const exited = once(child, 'close').then(([code]) => Number(code));
  const pid = await firstChildOf(child.pid ?? 0);
  return { pid, stdout: () => stdout, exited, kill: (signal) => void process.kill(pid, signal) };
}

async function firstChildOf(pid: number): Promise<number> {
  for (let tries = 0; tries < 1000; tries++) {
    const children = await readFile(`/proc/${pid}/task/${pid}/children`, 'utf8').catch(() => '');
    if (children.trim() !== '') return Number(children.trim().split(' ')[0]);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  throw new Error('The container did not start');
}
