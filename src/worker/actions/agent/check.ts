import type { RunMark } from '../../run-processes.ts';
import { startProgram } from '../program.ts';

/** Kept of what a check prints, in bytes: its end, where test runners say what failed. */
const OUTPUT_BYTES = 16 * 1024;

export interface CheckResult {
  exitCode?: number;
  signal?: string;
  isPassed: boolean;
  /** The end of what it printed, from a whole word on. */
  output: string;
}

/**
 * Runs a shell command that judges an agent's work.
 *
 * @param wrap words of a command line to put before it
 * @param onOutput is told what it prints, as it comes
 * @param signal aborted when it must end: it is told to, and killed after a grace period
 */
export async function runCheck(
  check: string,
  wrap: readonly string[],
  options: { cwd: string; env: NodeJS.ProcessEnv },
  mark: RunMark,
  onOutput: (data: Buffer) => void,
  signal: AbortSignal,
  graceMs: number,
): Promise<CheckResult> {
  const program = await startProgram([...wrap, 'sh', '-c', check], options, mark);
  program.stdin.end();
  let output = Buffer.alloc(0);
  let cutBytes = 0;
  const keep = (data: Buffer) => {
    onOutput(data);
    const all = Buffer.concat([output, data]);
    cutBytes += Math.max(all.length - OUTPUT_BYTES, 0);
    output = Buffer.from(all.subarray(-OUTPUT_BYTES));
  };
  program.stdout.on('data', keep);
  program.stderr.on('data', keep);
  const interrupt = () => program.terminate(graceMs);
  signal.addEventListener('abort', interrupt, { once: true });
  if (signal.aborted) interrupt();
  const [exitCode, exitSignal] = await program.exited;
  signal.removeEventListener('abort', interrupt);
  await program.endGroup();
  await program.drain();
  const text = output.toString();
  return {
    ...(exitCode !== null && { exitCode }),
    ...(exitSignal !== null && { signal: exitSignal }),
    isPassed: exitCode === 0,
    // The first word may be a part of a secret.
    output: cutBytes > 0 ? `… ${cutBytes} bytes before this\n${text.replace(/^\S*/, '')}` : text,
  };
}
