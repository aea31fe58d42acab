import { formatAge } from '../core/age.ts';
import type { AgentReport } from '../core/agent-event.ts';
import { writeCost } from '../core/agent-transcript.ts';
import { formatDuration } from '../core/durations.ts';
import { type Caller, HELD, isTerminal, outcomeLine, type Run, type RunAttemptRecord } from '../core/run.ts';
import { durationOf } from '../core/run-duration.ts';
import type { EventDelivery } from '../core/run-event.ts';
import { explainDropped } from '../ops/kept.ts';
import { describeObstacle, type Obstacle, obstacleOf } from '../ops/waiting-run.ts';
import type { RunArtifacts } from '../store/artifacts.ts';
import { type CommandContext, withStore } from './context.ts';
import { OrcCommand } from './orc-command.ts';
import { type Output, pairs } from './output.ts';
import { addRunArtifacts, describeAllOmitted } from './run-artifacts.ts';
import { addRunControl, getRun } from './run-control.ts';
import { addRunList, styled } from './run-list.ts';
import { printLogs } from './run-logs.ts';
import {
  addRunReference,
  findRunId,
  noSuchRun,
  RUN_REFERENCE_HELP,
  type RunReferenceOptions,
  runForPrograms,
} from './run-reference.ts';
import { addRunResult, resultLine } from './run-result.ts';

/** `orc runs …`: list, watch, cancel and repeat runs. */
export function runsCommand(context: CommandContext): OrcCommand {
  const { output } = context;
  const group = new OrcCommand('runs').description('list, watch, cancel and repeat runs');

  addRunList(group, context);

  addRunReference(
    group
      .command('show')
      .description('show one run: its status, its outcome, its result, its caller and its attempts'),
  )
    .option('--json', 'print JSON')
    .moreHelp({
      notes: RUN_REFERENCE_HELP,
      examples: [
        'orc runs show run_01a1fd79-2020-716f-b65b-e40f10ea5e54',
        'orc runs show 01a1fd79-2020-716f',
        'orc runs show --last deploy',
      ],
    })
    .action(async (reference: string | undefined, options: RunReferenceOptions & { json?: boolean }) => {
      const { run, attempts, dueAt, result, obstacle, isCancelling, left, dropped, events } = await withStore(
        context,
        async (store) => {
          const found = await getRun(store, await findRunId(store, reference, options));
          const [made, dueAt, result, obstacle, isCancelRequested, left, dropped, events] = await Promise.all(
            [
              store.runs.attempts(found),
              store.runs.dueAt(found.id),
              store.results.read(found),
              obstacleOf(store, found),
              store.runs.isCancelRequested(found.id),
              store.artifacts.list(found.id),
              explainDropped(store, found.id),
              store.events.deliveriesOf(found),
            ],
          );
          const isCancelling = isCancelRequested && !isTerminal(found.status);
          return { run: found, attempts: made, dueAt, result, obstacle, isCancelling, left, dropped, events };
        },
      );
      const { artifacts = [], omitted = [], omittedCount = 0 } = left ?? {};
      if (options.json) {
        const value = result && JSON.parse(result);
        const shown = { ...runForPrograms(run), result: value, attempts, dueAt, events };
        return output.json({ ...shown, artifacts, omitted, omittedCount, dropped: dropped !== undefined });
      }
      for (const line of [...describe(run, { result, dueAt, obstacle }, output), ...describeLeft(left)])
        output.line(line);
      for (const line of describeEvents(events, output)) output.line(line);
      if (dropped !== undefined) output.line(dropped);
      if (isCancelling) output.line('An operator has cancelled this run; its worker is ending it.');
      if (attempts.length < 2) return;
      output.line();
      const rows = attempts.map((attempt) => rowOf(attempt, output));
      output.table(['ATTEMPT', 'STARTED', 'TOOK', 'WORKER', 'OUTCOME'], rows);
    });

  addRunReference(
    group
      .command('logs')
      .description(
        'print the log of a run: its standard output to standard output, the rest to standard error',
      ),
  )
    .option('-f, --follow', 'keep printing until the run has ended')
    .option('--json', 'print one JSON object per line, with time, attempt and source')
    .moreHelp({
      notes: `The first and the last 512 KiB of each run are kept; a remark says how much was cut between them.`,
      examples: [
        'orc runs logs run_01a1fd79-2020-716f-b65b-e40f10ea5e54 --follow',
        'orc runs logs --last deploy --follow',
      ],
    })
    .action(async (reference: string | undefined, options: LogsOptions) => {
      await withStore(context, async (store) => {
        await printLogs(store, await findRunId(store, reference, options), options, output);
      });
    });

  addRunReference(
    group.command('payload').description('print the payload of a run, byte for byte as it was received'),
  )
    .option('--json', 'print an object with runId and payload')
    .moreHelp({
      notes: RUN_REFERENCE_HELP,
      examples: [
        'orc runs payload --last deploy | jq .',
        'orc runs payload 01a1fd79-2020-716f > payload.json',
      ],
    })
    .action(async (reference: string | undefined, options: RunReferenceOptions & { json?: boolean }) => {
      const { runId, payload } = await withStore(context, async (store) => {
        const runId = await findRunId(store, reference, options);
        const payload = await store.runs.payload(runId);
        if (payload === undefined) throw noSuchRun(runId);
        return { runId, payload };
      });
      // Not parsed, which would change large numbers.
      if (options.json) return output.out(`{"runId":${JSON.stringify(runId)},"payload":${payload}}\n`);
      const program = output.programOutput('out');
      program.write(Buffer.from(payload));
      program.end();
      if (output.isTerminal && !payload.endsWith('\n')) output.line();
    });

  addRunResult(group, context);
  addRunArtifacts(group, context);
  addRunControl(group, context);
  return group;
}

interface LogsOptions extends RunReferenceOptions {
  follow?: boolean;
  json?: boolean;
}

/** There is room for both on a terminal. */
function timeOf(time: Date | undefined, output: Output): string | undefined {
  if (!time || !output.isTerminal) return time?.toISOString();
  return `${time.toISOString()} (${formatAge(time)})`;
}

interface Described {
  result: string | undefined;
  dueAt: Date | 'held' | undefined;
  obstacle: Obstacle | undefined;
}

function describe(run: Run, { result, dueAt, obstacle }: Described, output: Output): string[] {
  const { outcome } = run;
  const held = obstacle ? undefined : HELD;
  return pairs([
    ['run', run.id],
    ['repeats', run.retryOf],
    ['automation', run.automation],
    ['status', styled(run.status, output)],
    ['waits', obstacle && output.style('yellow', describeObstacle(obstacle))],
    ['outcome', outcome?.message],
    ['detail', outcome?.detail],
    ['result', resultLine(run, result)],
    ['reason', outcome?.reason],
    ...describeAgent(outcome?.agent),
    ['exit code', outcome?.exitCode === undefined ? undefined : String(outcome.exitCode)],
    ['signal', outcome?.signal],
    ['HTTP status', outcome?.httpStatus === undefined ? undefined : String(outcome.httpStatus)],
    ['attempt', run.maxAttempts > 1 ? `${run.attempt} of at most ${run.maxAttempts}` : `${run.attempt}`],
    ['next attempt', dueAt === 'held' ? held : dueAt?.toISOString()],
    ['accepted', timeOf(run.acceptedAt, output)],
    ['started', timeOf(run.firstStartedAt, output)],
    ['ended', timeOf(run.endedAt, output)],
    ['took', durationOf(run)],
    ['worker', run.worker],
    ['payload', `${run.payloadBytes} bytes`],
    ['request', run.requestId],
    ...describeCaller(run.caller),
  ]);
}

function describeCaller(caller: Caller | undefined): [string, string | undefined][] {
  if (!caller) return [];
  if ('user' in caller) return [['caller', `${caller.user} on ${caller.host}, by the command line`]];
  return [
    ['caller', caller.address],
    ['user agent', caller.userAgent],
  ];
}

/** One line for each URL that the run's event goes to. */
function describeEvents(deliveries: readonly EventDelivery[], output: Output): string[] {
  return pairs(
    deliveries.map((delivery, index) => [
      index === 0 ? 'event     ' : '',
      describeDelivery(delivery, output),
    ]),
  );
}

function describeDelivery(delivery: EventDelivery, output: Output): string {
  const { receiver, status, at, tries, nextTryAt, lastError } = delivery;
  const times = `${tries} ${tries === 1 ? 'try' : 'tries'}`;
  if (status === 'delivered') return `${receiver}: delivered at ${timeOf(at, output)}, ${times}`;
  const error = lastError === undefined ? '' : `. ${lastError}`;
  if (status === 'dropped') {
    return output.style('red', `${receiver}: dropped at ${timeOf(at, output)}, ${times}${error}`);
  }
  if (tries === 0) return `${receiver}: waits to be sent`;
  return output.style(
    'yellow',
    `${receiver}: waits after ${times} until ${nextTryAt?.toISOString()}${error}`,
  );
}

/** The files that a run left. */
function describeLeft(left: RunArtifacts | undefined): string[] {
  if (!left) return [];
  const { artifacts } = left;
  const bytes = artifacts.reduce((sum, artifact) => sum + artifact.bytes, 0);
  const [first, ...others] = describeAllOmitted(left);
  return pairs([
    ['artifacts ', `${artifacts.length}, ${bytes} bytes: orc runs artifacts`],
    ['not kept', first],
    ...others.map((line): [string, string] => ['', line]),
  ]);
}

function rowOf(record: RunAttemptRecord, output: Output): string[] {
  const { attempt, worker, startedAt, endedAt, outcome, interruption } = record;
  const took = endedAt ? formatDuration(endedAt.getTime() - startedAt.getTime()) : '';
  const ending = outcome ? outcomeLine(outcome) : (interruption ?? 'executing');
  return [String(attempt), output.time(startedAt), took, worker, ending];
}

/** What an agent reported, and whether its work was checked. */
function describeAgent(report: AgentReport | undefined): [string, string | undefined][] {
  if (!report) return [];
  const { checks, stopReason, cost, branch, commit } = report;
  return [
    [
      'checked',
      checks === undefined ? 'not checked' : `the check ran ${checks === 1 ? 'once' : `${checks} times`}`,
    ],
    ['agent stopped', stopReason],
    ['cost', cost ? `${writeCost(cost)}, as the agent reports it` : 'not reported by the agent'],
    ['branch', branch],
    ['commit', commit],
  ];
}
