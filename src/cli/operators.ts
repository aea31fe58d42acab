import { Option } from 'commander';
import { OPERATOR_ROLES, type OperatorRole, parseOperatorName } from '../core/operator.ts';
import type { Store } from '../store/store.ts';
import { type CommandContext, consoleUrlFor, withStore } from './context.ts';
import { OrcCommand } from './orc-command.ts';
import { CommandError } from './output.ts';

const LINK_HELP = `The link logs in once, within 15 minutes. Give it to its operator only: whoever opens it first is logged in.`;

/** `orc operators …`: who may open the console. */
export function operatorsCommand(context: CommandContext): OrcCommand {
  const { output } = context;
  const group = new OrcCommand('operators').description('let people into the console, and out of it');

  /** Prints a link that logs in. */
  const printLink = async (store: Store, name: string, json = false, first?: string): Promise<void> => {
    const made = await store.operators.createLink(name);
    if (!made) throw unknownOperator(name);
    const { token, expiresAt } = made;
    const link = `${await consoleUrlFor(context)}/login/${token}`;
    if (json) return output.json({ name, link, expiresAt });
    if (first !== undefined) output.line(first);
    output.line(`This link logs ${name} in once, within 15 minutes:`);
    output.line();
    output.line(`  ${output.style('bold', link)}`);
  };

  group
    .command('add')
    .description('let somebody into the console; prints a link that logs in once')
    .argument('<name>', 'name of the operator, such as ada or ada@example.com')
    .addOption(
      new Option(
        '--role <role>',
        'viewer: sees everything but secrets; admin: changes everything, and so executes code on the workers',
      )
        .choices(OPERATOR_ROLES)
        .makeOptionMandatory(),
    )
    .option('--json', 'print JSON')
    .moreHelp({
      notes: `${LINK_HELP} Behind a single sign-on
proxy (CONSOLE_USER_HEADER) the name is the one that the proxy tells, and no link is needed. For another role, remove
and add the operator.`,
      examples: ['orc operators add ada --role admin', 'orc operators add bob@example.com --role viewer'],
    })
    .action(async (text: string, { role, json }: { role: OperatorRole; json?: boolean }) => {
      const name = parseOperatorName(text);
      await withStore(context, async (store) => {
        if (!(await store.operators.add(name, role))) {
          throw new CommandError(`The operator ${name} exists already and was not changed.`, {
            hint: `A new login link: orc operators link ${name}`,
          });
        }
        await printLink(store, name, json, `The operator ${name} is added, as ${role}.`);
      });
    });

  group
    .command('link')
    .description('print another link that logs an operator in once')
    .argument('<name>', 'the operator')
    .option('--json', 'print JSON')
    .moreHelp({ notes: LINK_HELP, examples: ['orc operators link ada'] })
    .action(async (name: string, { json }: { json?: boolean }) => {
      await withStore(context, (store) => printLink(store, name, json));
    });

  group
    .command('list')
    .description('list all operators')
    .option('--json', 'print JSON')
    .moreHelp({ examples: ['orc operators list'] })
    .action(async ({ json }: { json?: boolean }) => {
      const operators = await withStore(context, async (store) =>
        Promise.all(
          (await store.operators.list()).map(async (operator) => ({
            ...operator,
            sessions: (await store.operators.sessions(operator.name)).length,
          })),
        ),
      );
      if (json) return output.json(operators);
      if (operators.length === 0) {
        return output.line('There are no operators. Add one: orc operators add <name> --role admin');
      }
      const rows = operators.map(({ name, role, sessions, createdAt }) => [
        name,
        role,
        String(sessions),
        output.time(createdAt),
      ]);
      output.table(['NAME', 'ROLE', 'SESSIONS', 'ADDED'], rows);
    });

  group
    .command('sessions')
    .description('list the sessions of an operator, or end them')
    .argument('<name>', 'the operator')
    .option('--end', 'end all of them at once')
    .option('--json', 'print JSON')
    .moreHelp({
      notes: 'A session ends 12 hours after its last request, and 7 days after its login.',
      examples: ['orc operators sessions ada', 'orc operators sessions ada --end'],
    })
    .action(async (name: string, { end, json }: { end?: boolean; json?: boolean }) => {
      const sessions = await withStore(context, async (store) => {
        if (!(await store.operators.get(name))) throw unknownOperator(name);
        const found = await store.operators.sessions(name);
        if (end) await store.operators.endSessions(name);
        return found;
      });
      if (json) return output.json(end ? { name, ended: sessions.length } : sessions);
      if (end) {
        const are = sessions.length === 1 ? `session of ${name} is` : `sessions of ${name} are`;
        return output.line(`${sessions.length} ${are} ended.`);
      }
      if (sessions.length === 0) return output.line(`${name} is not logged in.`);
      const rows = sessions.map(({ address, createdAt, lastSeenAt, endsAt, userAgent }) => [
        address,
        output.time(createdAt),
        output.time(lastSeenAt),
        endsAt.toISOString(),
        userAgent,
      ]);
      output.table(['FROM', 'LOGGED IN', 'LAST SEEN', 'ENDS', 'BROWSER'], rows);
    });

  group
    .command('remove')
    .description('remove an operator; all sessions and links end at once')
    .argument('<name>', 'the operator')
    .option('--json', 'print JSON')
    .moreHelp({ examples: ['orc operators remove ada'] })
    .action(async (name: string, { json }: { json?: boolean }) => {
      await withStore(context, async (store) => {
        if (!(await store.operators.remove(name))) throw unknownOperator(name);
      });
      if (json) return output.json({ name, removed: true });
      output.line(`The operator ${name} is removed.`);
    });

  return group;
}

function unknownOperator(name: string): CommandError {
  return new CommandError(`There is no operator ${name}.`, { hint: 'See: orc operators list' });
}
