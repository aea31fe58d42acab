import { Argument, type Command, type Option } from 'commander';
import { isSlug, ON_WORKER_LOSS } from '../core/automation.ts';
import { RUN_STATUSES } from '../core/run.ts';
import { UNSET_NAMES } from './automation-changes.ts';
import { type CommandContext, withStore } from './context.ts';
import { OrcCommand } from './orc-command.ts';

/** How long completion waits for Redis, in milliseconds. */
const SLUGS_DEADLINE_MS = 1000;

/** Printed alone, it makes the shell complete file names. */
const FILES = ':files';

/**
 * Each shell passes the words up to the cursor to `orc __complete`, which prints one candidate a line: the word, a tab and
 * its meaning. When something fails, such as Redis, there are no candidates and no message.
 */
const SCRIPTS = {
  bash: `# bash completion of orc. For every new shell: orc completion bash >> ~/.bashrc
_orc() {
  local line current="\${COMP_WORDS[COMP_CWORD]}"
  COMPREPLY=()
  while IFS= read -r line; do
    COMPREPLY+=("\${line%%$'\\t'*}")
  done < <("$1" __complete -- "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  if [ "\${COMPREPLY[0]}" = ${FILES} ]; then
    COMPREPLY=()
    while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -f -- "$current")
    compopt -o filenames 2>/dev/null
  fi
}
complete -F _orc orc
`,
  zsh: `#compdef orc
# zsh completion of orc. For every new shell: echo 'source <(orc completion zsh)' >> ~/.zshrc
_orc() {
  local -a lines candidates
  lines=("\${(@f)$("\${words[1]}" __complete -- "\${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ \${lines[1]} == ${FILES} ]]; then
    _files
    return
  fi
  local line
  for line in $lines; do
    candidates+=("\${line/$'\\t'/:}")
  done
  _describe orc candidates
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }
if [[ $funcstack[1] == _orc ]]; then _orc "$@"; else compdef _orc orc; fi
`,
  fish: `# fish completion of orc. For every new shell: orc completion fish > ~/.config/fish/completions/orc.fish
function __orc
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l candidates ($words[1] __complete -- $words[2..-1] "$current" 2>/dev/null)
    if test "$candidates[1]" = ${FILES}
        __fish_complete_path "$current"
    else
        printf '%s\\n' $candidates
    end
end
complete -c orc -f -a '(__orc)'
`,
} as const;

/** `orc completion`, and the hidden command that its scripts call. */
export function completionCommands(context: CommandContext, program: Command): [Command, Command] {
  const { output } = context;
  const shells = Object.keys(SCRIPTS) as (keyof typeof SCRIPTS)[];

  const completion = new OrcCommand('completion')
    .description('print the script for shell completion of commands, options and slugs')
    .addArgument(new Argument('<shell>', 'the shell').choices(shells))
    .moreHelp({
      notes: `Slugs come from Redis, if it answers within a second.`,
      examples: [
        'source <(orc completion bash)',
        'orc completion fish > ~/.config/fish/completions/orc.fish',
      ],
    })
    .action((shell: keyof typeof SCRIPTS) => output.out(SCRIPTS[shell]));

  const complete = new OrcCommand('__complete').argument('[words...]').action(async (words: string[]) => {
    for (const line of await candidatesFor(words, program, context)) output.line(line);
  });

  return [completion, complete];
}

/** Values of options. */
const VALUES: Readonly<Record<string, readonly string[]>> = {
  '--status': RUN_STATUSES,
  '--on-worker-loss': ON_WORKER_LOSS,
  '--unset': UNSET_NAMES,
  '--file': [FILES],
  '--keys-dir': [FILES],
  '--cwd': [FILES],
  '--prompt-file': [FILES],
};

/** Candidates for the last of these words, as lines. */
async function candidatesFor(
  words: readonly string[],
  program: Command,
  context: CommandContext,
): Promise<readonly string[]> {
  const before = words.slice(0, -1);
  // After `--` comes the command line of a program.
  if (before.includes('--')) return [FILES];
  // Bash passes an equals sign as a separate word.
  const current = words.at(-1)?.replace(/^=$/, '') ?? '';
  const place = read(
    before.filter((word) => word !== '='),
    program,
  );
  const candidates = await allCandidates(place, current.startsWith('-'), context);
  return candidates.filter((line) => line === FILES || line.startsWith(current));
}

/** The command of a command line, how many arguments it has so far, and the option that still needs its value. */
function read(words: readonly string[], program: Command) {
  let command = program;
  let argumentCount = 0;
  let option: Option | undefined;
  for (const word of words) {
    if (option) {
      option = undefined;
    } else if (word.startsWith('-')) {
      // The value of `--last` may be left out; most often it is not.
      option = command.options.find(
        ({ long, short, required, optional }) => (required || optional) && [long, short].includes(word),
      );
    } else {
      const subcommand = command.commands.find((each) => each.name() === word);
      argumentCount = subcommand ? 0 : argumentCount + 1;
      command = subcommand ?? command;
    }
  }
  return { command, argumentCount, option };
}

async function allCandidates(
  { command, argumentCount, option }: ReturnType<typeof read>,
  isOption: boolean,
  context: CommandContext,
): Promise<readonly string[]> {
  if (option?.long === '--automation' || option?.long === '--last') return slugs(context);
  if (option) return VALUES[option.long ?? ''] ?? [];
  if (isOption) {
    const options = command.createHelp().visibleOptions(command);
    return options.map(({ long, description }) => `${long}\t${description}`);
  }
  if (command.commands.length > 0) {
    const visible = command.commands.filter((each) => !each.name().startsWith('__'));
    return visible.map((each) => `${each.name()}\t${each.description()}`);
  }
  const argument = command.registeredArguments[argumentCount];
  // `create` takes a new slug.
  if (argument?.name() === 'slug' && command.name() !== 'create') return slugs(context);
  return argument?.argChoices ?? [];
}

async function slugs(context: CommandContext): Promise<string[]> {
  try {
    const found = await withStore(context, (store) => store.automations.slugs(), SLUGS_DEADLINE_MS);
    return found.filter(isSlug).map((slug) => `${slug}\tautomation`);
  } catch {
    return [];
  }
}
