import { type Config, ConfigError } from '../config.ts';
import { type Finding, ok, problem } from '../ops/findings/finding.ts';
import { checkDisk } from './checks/disk.ts';
import { checkEnvironment } from './checks/environment.ts';
import { type CommandContext, withStore } from './context.ts';
import { OrcCommand } from './orc-command.ts';
import { CommandError, type Output } from './output.ts';

const STYLES = { ok: 'green', unknown: 'dim', warning: 'yellow', problem: 'red' } as const;

/** `orc doctor`: finds what is wrong with this installation and names the cure. */
export function doctorCommand(context: CommandContext): OrcCommand {
  const { output } = context;
  return new OrcCommand('doctor')
    .description('check this installation and name the cure of each problem')
    .option('--json', 'print JSON')
    .moreHelp({
      notes: `It checks the environment, Redis (connection, rights, version, persistence, eviction, memory, clock, latency), the
workers, the runs, their events, what is kept and, for \`orc local\`, the disk. Run it with the environment of the API.

Each finding is ok, a warning (works, but not for long or not safely), a problem (does not work or can lose runs) or
unknown (this login may not check). All but ok come with the command or setting that cures them.`,
      exitCodes: '0 no problem (warnings are possible), 1 a problem, 2 usage error',
      examples: ['orc doctor', 'orc doctor --json | jq \'.[] | select(.state == "problem")\''],
    })
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
    ok('environment', 'valid'),
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
      return problem('environment', line.trim(), `set ${name} to a valid value, or unset it`);
    });
  }
}

async function checkStore(context: CommandContext, config: Config): Promise<Finding[]> {
  try {
    return await withStore(context, async (store) => {
      const { examineStore } = await import('../ops/findings/examine-store.ts');
      const { MAX_QUEUED_RUNS, RUN_TIMEOUT_MS, KEEP_BYTES } = config;
      const limits = { maxQueuedRuns: MAX_QUEUED_RUNS, runTimeoutMs: RUN_TIMEOUT_MS, keepBytes: KEEP_BYTES };
      return examineStore(store, limits);
    });
  } catch (error) {
    if (!(error instanceof CommandError)) throw error;
    return [problem('redis', error.message, error.hint ?? 'set REDIS_URL to the Redis of orc')];
  }
}

function print(findings: readonly Finding[], output: Output): void {
  const width = Math.max(...findings.map(({ check }) => check.length));
  for (const { state, check, message, cure } of findings) {
    output.line(`${output.style(STYLES[state], state.padEnd(7))}  ${check.padEnd(width)}  ${message}`);
    if (cure !== undefined) output.line(`${' '.repeat(width + 11)}${output.style('bold', `cure: ${cure}`)}`);
  }
}
