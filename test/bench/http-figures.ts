import { readFileSync } from 'node:fs';

/** Linux gives CPU times in these, in microseconds: USER_HZ is 100 wherever Node runs. */
const TICK_US = 10_000;

/** The CPU time that a process and the children it waited for have had, in microseconds; NaN where there is no `/proc`. */
export function cpuUsOf(pid: number): number {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The name, in parentheses, can hold anything; utime, stime, cutime and cstime are fields 14 to 17.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return fields.slice(11, 15).reduce((sum, ticks) => sum + Number(ticks), 0) * TICK_US;
  } catch {
    return Number.NaN;
  }
}

/** The CPU time that the whole machine has had, stolen time included, in microseconds; NaN where there is no `/proc`. */
function machineCpuUs(): number {
  try {
    const [, user, nice, system, , , irq, softirq, steal] = readFileSync('/proc/stat', 'utf8').split(/\s+/);
    return [user, nice, system, irq, softirq, steal].reduce((sum, ticks) => sum + Number(ticks), 0) * TICK_US;
  } catch {
    return Number.NaN;
  }
}

/** What a load began with. */
interface CpuMark {
  watched: number[];
  own: NodeJS.CpuUsage;
  machine: number;
}

export function markCpu(watched: readonly number[]): CpuMark {
  return { watched: watched.map(cpuUsOf), own: process.cpuUsage(), machine: machineCpuUs() };
}

/** The CPU time since the mark: of each watched process, of this one, and of everything else on the machine. */
export function cpuSince(
  mark: CpuMark,
  watched: readonly number[],
): { cpuUs: number[]; clientCpuUs: number; otherCpuUs: number } {
  const cpuUs = watched.map((pid, index) => cpuUsOf(pid) - (mark.watched[index] ?? Number.NaN));
  const { user, system } = process.cpuUsage(mark.own);
  const clientCpuUs = user + system;
  const known = cpuUs.reduce((sum, us) => sum + us, clientCpuUs);
  return { cpuUs, clientCpuUs, otherCpuUs: Math.max(machineCpuUs() - mark.machine - known, 0) };
}

/** By the nearest rank. */
export function percentiles(values: readonly number[]): { p50: number; p99: number; p999: number } {
  const sorted = Float64Array.from(values).sort();
  const at = (share: number) => sorted[Math.ceil(sorted.length * share) - 1] ?? Number.NaN;
  return { p50: at(0.5), p99: at(0.99), p999: at(0.999) };
}
