import { Command } from 'commander';
import { processEnvironment } from '../config.ts';
import type { RunningLocal } from '../local/start-local.ts';
import { curlLine } from './automations.ts';
import { closeInOrder } from './closing.ts';
import type { CommandContext } from './context.ts';
import { helpText } from './help-text.ts';
import { formatRecord } from './local-console.ts';
import type { Output } from './output.ts';

/** `orc local`: everything on this machine. */
export function localCommand(context: CommandContext): Command {
  const { output } = context;
  return new Command('local')
    .description('run everything on this machine: a private Redis, the API and a worker; data in .orc')
    .option('--trust', 'use a .orc that is not known as yours, such as one from a backup')
    .addHelpText(
      'after',
      helpText({
        notes: `Redis is taken from the PATH, or fetched into your cache folder. The first start creates an automation named hello and
prints the key for it. Every other command that is typed in this folder, or below it, finds this Redis by itself.

.orc is only used when it is yours, nobody else can write to it, and your state folder ($XDG_STATE_HOME/orc, by default
~/.local/state/orc) knows it: one that came with a repository has no effect.`,
        exitCodes: '0 stopped with Ctrl-C, 1 it could not start or a part of it ended, 2 typed wrongly',
        examples: ['orc local', 'PORT=8080 orc local'],
      }),
    )
    .action(async ({ trust = false }: { trust?: boolean }) => {
      const config = context.config();
      let failure: string | undefined;
      // A Ctrl-C that comes while things are being started ends them as soon as they are.
      const { close, uninstall } = closeInOrder({ graceMs: config.SHUTDOWN_GRACE_MS }, async ({ err }) => {
        if (err) output.err(`orc: ${err.stack ?? err.message}\n`);
        output.line();
        output.line('Stopping: runs in progress may finish. Ctrl-C again stops them.');
        const started = await starting.catch(() => undefined);
        await started?.close();
        output.line('Stopped. The data stays in .orc/.');
        // A rejection is how close-with-grace is told of the exit code 1.
        if (failure !== undefined) throw new Error(failure);
      });
      const starting = import('../local/start-local.ts').then(({ startLocal }) =>
        startLocal({
          config,
          env: processEnvironment(),
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
        output.err(`orc: ${how} Everything else is stopped too.\n`);
        failure = how;
        return close();
      });

      for (const line of welcome(running, output)) output.line(line);
    });
}

/** What to do next, for somebody who has never seen it before or comes back to it. */
function welcome({ apiUrl, hello }: RunningLocal, output: Output): string[] {
  const first = hello
    ? [
        'The automation hello is created. Its API key, shown only this once:',
        '',
        `  ${output.style('bold', hello.apiKey)}`,
        '',
        'Start a run:',
        '',
        `  ${curlLine(apiUrl, 'hello', hello.apiKey, '{"name":"world"}')}`,
        '',
      ]
    : [
        'Your automations:         npx orc automations list',
        'A new key for one:        npx orc automations rotate-key <slug>',
      ];
  return [
    '',
    `orc runs at ${output.style('bold', apiUrl)}`,
    '',
    ...first,
    'What a run printed:       npx orc runs logs <runId>',
    'An automation of yours:   npx orc automations create my-script -- ./my-script.sh',
    `Documentation:            ${apiUrl}/`,
    'Ctrl-C stops everything; the data stays in .orc/.',
    '',
  ];
}
