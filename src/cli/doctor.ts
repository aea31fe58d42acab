import { Command } from 'commander';
import { type Config, ConfigError } from '../config.ts';
import { checkDisk } from './checks/disk.ts';
import { checkEnvironment } from './checks/environment.ts';
import { type Finding, ok, problem } from './checks/finding.ts';
import { checkRuns } from './checks/runs.ts';
import { type CommandContext, withStore } from './context.ts';
import { helpText } from './help-text.ts';
import { CommandError, type Output } from './output.ts';

const STYLES = { ok: 'green', unknown: 'dim', warning: 'yellow', problem: 'red' } as const;

/** `orc doctor`: what is wrong with this installation, and what cures it. */
export function doctorCommand(context: CommandContext): Command {
  const { output } = context;
  return new Command('doctor')
    .description('check this installation, and say what cures what is wrong')
    .option('--json', 'print JSON')
    .addHelpText(
      'after',
      helpText({
        notes: `It looks at the environment, at Redis (reachable, version, persistence, eviction, memory, clock, latency), at workers
and runs, and for \`orc local\` at the disk. Run it with the environment of the API.

Each finding is ok, a warning (it works, but not for long or not safely), a problem (something does not work or can lose
runs) or unknown (this login may not look). Below all but the first stands the command or setting that cures it.`,
        exitCodes: '0 no problem, though there may be warnings, 1 a problem, 2 typed wrongly',
        examples: ['orc doctor', 'orc doctor --json | jq \'.[] | select(.state == "problem")\''],
      }),
    )
    .action(async ({ json }: { json?: boolean }) => {
      const findings = await examine(context);
      if (json) output.json(findings);
      else print(findings, output);
      const count = findings.filter(({ state }) => state === 'problem').length;
      if (count > 0)
        throw new CommandError(count === 1 ? 'There is a problem.' : `There are ${count} problems.`);
    });
}

async function examine(context: CommandContext): Promise<Finding[]> {
  const config = readConfig(context);
  if (Array.isArray(config)) return config;
  return [
    ok('environment', 'every variable can be used'),
    ...checkEnvironment(config),
    ...(config.REDIS_URL === undefined ? [await checkDisk(context.directory)] : []),
    ...(await checkStore(context, config)),
  ];
}

/** @returns the problems, when there are any */
function readConfig({ config }: CommandContext): Config | Finding[] {
  try {
    return config();
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const [, ...lines] = error.message.split('\n');
    return lines.map((line) => {
      const [name = ''] = line.trim().split(' ');
      return problem('environment', line.trim(), `set ${name} to what it is for, or unset it`);
    });
  }
}

async function checkStore(context: CommandContext, config: Config): Promise<Finding[]> {
  try {
    return await withStore(context, async (store) => {
      const { checkRedis, checkRights } = await import('./checks/redis.ts');
      const reached = [ok('redis', 'it can be reached'), await checkRights(store)];
      // What it lacks is needed to look at the rest.
      if (reached.some(({ state }) => state === 'problem')) return reached;
      const findings = [...reached, ...(await checkRedis(store))];
      // BullMQ cannot even be asked without writing.
      const takesWrites = findings.some(({ check, state }) => check === 'redis writes' && state === 'ok');
      return takesWrites ? [...findings, ...(await checkRuns(store, config))] : findings;
    });
  } catch (error) {
    if (!(error instanceof CommandError)) throw error;
    return [problem('redis', error.message, 'start `orc local` in this folder, or set REDIS_URL')];
  }
}

function print(findings: readonly Finding[], output: Output): void {
  const width = Math.max(...findings.map(({ check }) => check.length));
  for (const { state, check, message, cure } of findings) {
    output.line(`${output.style(STYLES[state], state.padEnd(7))}  ${check.padEnd(width)}  ${message}`);
    if (cure !== undefined) output.line(`${' '.repeat(width + 11)}${output.style('bold', `cure: ${cure}`)}`);
  }
}
