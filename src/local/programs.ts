import { execFile } from 'node:child_process';
import { access, constants, stat } from 'node:fs/promises';
import { basename, delimiter, isAbsolute, join } from 'node:path';
import { promisify } from 'node:util';

const DEFAULT_TIMEOUT_MS = 120_000;

/**
 * Runs a program to its end, without input.
 *
 * @returns its standard output
 * @throws an error of one line: the program and the last line of its output
 */
export async function run(
  command: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv,
  timeoutMs = DEFAULT_TIMEOUT_MS,
): Promise<string> {
  const running = promisify(execFile)(command, args, { env, timeout: timeoutMs, maxBuffer: 64 * 2 ** 20 });
  running.child.stdin?.end();
  try {
    return (await running).stdout;
  } catch (error) {
    const { killed, stdout, stderr, message } = error as Error & Partial<Record<string, string>>;
    const complaint = (stderr?.trim() || stdout?.trim() || message).trim().split('\n').at(-1);
    const reason = killed ? `did not end within ${timeoutMs / 1000} s` : complaint;
    throw new Error(`${basename(command)}: ${reason}`, { cause: error });
  }
}

/** @returns the executable files of these names, by name, then in the order of the PATH */
export function onPath({ PATH = '' }: NodeJS.ProcessEnv, ...names: string[]): Promise<string[]> {
  const directories = PATH.split(delimiter).filter(isAbsolute);
  return executables(names.flatMap((name) => directories.map((directory) => join(directory, name))));
}

/** @returns those of the paths that are executable files */
export async function executables(paths: readonly string[]): Promise<string[]> {
  const checks = paths.map(async (path) => {
    await access(path, constants.X_OK);
    return (await stat(path)).isFile();
  });
  const results = await Promise.allSettled(checks);
  return paths.filter((_, index) => {
    const result = results[index];
    return result?.status === 'fulfilled' && result.value;
  });
}

/** @throws the first candidate's error when none succeeds, because the first is the preferred one */
export async function firstSuccess<T, R>(
  candidates: readonly T[],
  attempt: (candidate: T) => Promise<R>,
): Promise<R> {
  const causes: unknown[] = [];
  for (const candidate of candidates) {
    try {
      return await attempt(candidate);
    } catch (error) {
      causes.push(error);
    }
  }
  throw causes[0];
}
