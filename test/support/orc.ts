import { Readable, Writable } from 'node:stream';
import type { TerminalOutput } from '../../src/cli/output.ts';
import { runProgram } from '../../src/cli/program.ts';
import { environment, type Finished } from './orc-process.ts';

/** These own their process, its signals and its end. */
const PROCESSES = ['local', 'api', 'worker', 'console'];

interface Options {
  env?: NodeJS.ProcessEnv;
  cwd?: string;
  /** What standard input holds. */
  stdin?: string;
  /** Whether standard input, output and error are a terminal's. */
  isTTY?: boolean;
  /** How wide the terminal is. */
  columns?: number;
}

/**
 * Runs `orc …` to its end in this process: everything is real but the start of a process, which takes some 300 ms of CPU. What
 * a process has of its own (signals, pipes, that it ends) is tested with orc-process.ts.
 */
export async function runOrc(args: string[], options: Options = {}): Promise<Finished> {
  const { env = {}, cwd = process.cwd(), stdin = '', isTTY = false, columns = 100 } = options;
  if (PROCESSES.includes(args[0] ?? '') && !args.includes('--help')) {
    throw new Error(`orc ${args[0]} owns its process: start it with orc-process.ts`);
  }
  const stdout = collector(isTTY, columns);
  const stderr = collector(isTTY, columns);
  const code = await runProgram({
    args,
    stdin: () => Object.assign(Readable.from([Buffer.from(stdin)]), { isTTY }),
    stdout: stdout.stream,
    stderr: stderr.stream,
    env: environment(env),
    directory: cwd,
  });
  return { code, stdout: stdout.text(), stderr: stderr.text() };
}

function collector(isTTY: boolean, columns: number): { stream: TerminalOutput; text(): string } {
  const chunks: Buffer[] = [];
  const stream = new Writable({
    write: (chunk, _, done) => {
      chunks.push(chunk);
      done();
    },
  });
  return { stream: Object.assign(stream, { isTTY, columns }), text: () => Buffer.concat(chunks).toString() };
}
