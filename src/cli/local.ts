import { curlLine } from '../core/curl-line.ts';
import { PACKAGE_ROOT } from '../core/package-root.ts';
import type { RunningLocal } from '../local/start-local.ts';
import { closeInOrder } from './closing.ts';
import type { CommandContext } from './context.ts';
import { type HowToCall, howToCall } from './how-to-call.ts';
import { formatRecord } from './local-console.ts';
import { OrcCommand } from './orc-command.ts';
import type { Output } from './output.ts';

/** `orc local`: everything on this machine. */
export function localCommand(context: CommandContext): OrcCommand {
  const { output } = context;
  return new OrcCommand('local')
    .description(
      'run everything on this machine: a private Redis, the API, a worker and the console; data in .orc',
    )
    .option('--trust', 'accept a .orc that your state folder does not know, such as one from a backup')
    .moreHelp({
      notes: `Redis comes from the PATH, or is fetched into your cache folder. The first start creates the automation hello and
prints its key. Other commands in this folder, or below it, find this Redis.

.orc is used only if it is yours, nobody else can write to it, and your state folder ($XDG_STATE_HOME/orc, by default
~/.local/state/orc) knows it. A .orc that came with a repository has no effect.`,
      exitCodes: '0 stopped with Ctrl-C, 1 could not start or a part of it ended, 2 usage error',
      examples: ['orc local', 'PORT=8080 orc local'],
    })
    .action(async ({ trust = false }: { trust?: boolean }) => {
      const config = context.config();
      let failure: string | undefined;
      // A Ctrl-C during the start takes effect once everything has started.
      const { close, uninstall } = closeInOrder({ graceMs: config.SHUTDOWN_GRACE_MS }, async ({ err }) => {
        if (err) output.err(`orc: ${err.stack ?? err.message}\n`);
        output.line();
        output.line('Stopping: waiting for runs in progress. Ctrl-C again stops them.');
        const started = await starting.catch(() => undefined);
        await started?.close();
        output.line('Stopped. The data stays in .orc/.');
        // A rejection makes close-with-grace exit with code 1.
        if (failure !== undefined) throw new Error(failure);
      });
      const starting = import('../local/start-local.ts').then(({ startLocal }) =>
        startLocal({
          config,
          env: context.env,
          directory: context.directory,
          stateDir: context.stateDir(),
          trust,
          report: (message) => output.line(message),
          onRecord: (record, printed) => {
            const line = formatRecord(record, printed, output);
            if (line !== undefined) output.line(line);
          },
        }),
      );
      const running = await starting.catch((error) => {
        uninstall();
        throw error;
      });
      void running.failed.then((how) => {
        output.err(`orc: ${how} Everything else stops too.\n`);
        failure = how;
        return close();
      });

      const orc = howToCall(PACKAGE_ROOT, context.directory, running.redisUrl);
      for (const line of welcome(running, orc, output)) output.line(line);
    });
}

/** What to do next, for new users and returning ones. */
function welcome(
  { apiUrl, loginLink, hello }: RunningLocal,
  { here, elsewhere }: HowToCall,
  output: Output,
): string[] {
  const first = hello
    ? [
        'The automation hello is created. Its API key, shown only once:',
        '',
        `  ${output.style('bold', hello.apiKey)}`,
        '',
        'Start a run:',
        '',
        `  ${curlLine(apiUrl, 'hello', hello.apiKey, '{"name":"world"}')}`,
        '',
      ]
    : [
        `Your automations:         ${here} automations list`,
        `A new key for one:        ${here} automations rotate-key <slug>`,
      ];
  return [
    '',
    `orc runs at ${output.style('bold', apiUrl)}`,
    '',
    ...first,
    `In a browser, once:       ${loginLink}`,
    `What a run printed:       ${here} runs logs --last`,
    `An automation of yours:   ${here} automations create my-script -- sh -c 'echo "I got $(cat)"'`,
    `In other folders, first:  ${elsewhere}`,
    `Documentation:            ${apiUrl}/`,
    'Ctrl-C stops everything; the data stays in .orc/.',
    '',
  ];
}
