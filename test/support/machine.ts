import { execFileSync } from 'node:child_process';
import { accessSync, constants, existsSync, readdirSync, readFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';

/** Whether a program is on the PATH. A fresh machine has little more than Node. */
export function hasCommand(name: string): boolean {
  return (process.env['PATH'] ?? '').split(delimiter).some((directory) => {
    try {
      accessSync(join(directory, name), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

export interface MachineProcess {
  pid: number;
  parent: number;
  args: string;
}

/** The processes of this machine, by /proc where there is one, as not every machine has `ps`. */
export function listProcesses(): MachineProcess[] {
  if (!existsSync('/proc/self/stat')) {
    const rows = execFileSync('ps', ['-eo', 'pid=,ppid=,args='], { encoding: 'utf8' }).split('\n');
    return rows.flatMap((row) => {
      const [, pid, parent, args = ''] = /^\s*(\d+)\s+(\d+)\s+(.*)$/.exec(row) ?? [];
      return pid === undefined ? [] : [{ pid: Number(pid), parent: Number(parent), args }];
    });
  }
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => {
      try {
        const stat = readFileSync(`/proc/${name}/stat`, 'utf8');
        // The second field, the program's name in parentheses, may itself hold spaces and parentheses.
        const [state = '', parent = '0'] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
        const args = readFileSync(`/proc/${name}/cmdline`, 'utf8').replaceAll('\0', ' ').trim();
        return state === 'Z' ? [] : [{ pid: Number(name), parent: Number(parent), args }];
      } catch {
        // It has ended meanwhile.
        return [];
      }
    });
}
