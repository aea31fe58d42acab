import { randomUUID } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { Option } from 'commander';
import { isMap } from '../core/automation-entry.ts';
import { parseDuration } from '../core/durations.ts';
import { EMPTY_PAYLOAD, readJson } from '../core/payload.ts';
import { thisOperator } from '../core/this-operator.ts';
import { newRunId } from '../store/run-id.ts';
import type { Store } from '../store/store.ts';
import { unknownSlug } from './automations.ts';
import { type CommandContext, withStore } from './context.ts';
import { OrcCommand } from './orc-command.ts';
import { CommandError, type TerminalInput, UsageError } from './output.ts';
import { acceptLimits, disabledError, fullError, WAIT_EXIT_CODES_HELP, watch } from './run-control.ts';
import { printLogs } from './run-logs.ts';

interface TriggerOptions {
  data?: string;
  wait?: boolean;
  follow?: boolean;
  timeout?: string;
  idempotencyKey?: string;
  json?: boolean;
}

/** The same as over HTTP. */
const IDEMPOTENCY_KEY = /^[\x20-\x7e]{1,255}$/;

/** `orc trigger`: start a run without a key and without HTTP. */
export function triggerCommand(context: CommandContext): OrcCommand {
  const { output } = context;
  return new OrcCommand('trigger')
    .description('start a run without a key and without HTTP')
    .argument('<slug>', 'the automation')
    .option(
      '-d, --data <payload>',
      'the payload: a JSON object, @file, or - for standard input (default: an empty object)',
    )
    .option('--wait', 'wait for the run to end; the exit code tells its status')
    .addOption(
      new Option('--follow', 'the same, and print its log as it is written').conflicts(['wait', 'json']),
    )
    .option('--timeout <duration>', 'with --wait or --follow: stop waiting after this time (default: never)')
    .option('--idempotency-key <key>', 'the same key starts a single run within 24 hours, as over HTTP')
    .option('--json', 'print JSON')
    .moreHelp({
      notes: `The automation must be enabled. The run counts for the queue's capacity and for --concurrency, not for --rate. Its caller
is you on this machine. The payload reaches it byte for byte.`,
      exitCodes: `0 accepted, 1 failure, 2 usage error; with --wait or --follow: ${WAIT_EXIT_CODES_HELP}`,
      examples: [
        `orc trigger hello -d '{"name":"world"}' --follow`,
        'jq -n --arg ref "$REF" \'{ref: $ref}\' | orc trigger deploy -d - --wait --timeout 10m',
      ],
    })
    .action(async (slug: string, options: TriggerOptions) => {
      const { timeout, idempotencyKey, json = false, wait = false, follow = false } = options;
      const endsAt = timeout === undefined ? undefined : Date.now() + parseDuration(timeout);
      if (idempotencyKey !== undefined && !IDEMPOTENCY_KEY.test(idempotencyKey)) {
        throw new UsageError('--idempotency-key takes 1 to 255 printable ASCII characters, such as a UUID.');
      }
      const { MAX_QUEUED_RUNS, BODY_LIMIT_BYTES } = context.config();
      const payload = await payloadFrom(options.data, context, BODY_LIMIT_BYTES);
      await withStore(context, async (store) => {
        const { runId, status } = await start(store, slug, { payload, idempotencyKey }, MAX_QUEUED_RUNS);
        if (!wait && !follow) return json ? output.json({ runId, status }) : output.line(runId);
        output.err(`${runId}\n`);
        if (follow) await printLogs(store, runId, { follow, endsAt }, output);
        await watch(store, runId, { timeout, endsAt, json, isRemark: follow }, output);
      });
    });
}

/** @throws CommandError when no run was accepted */
async function start(
  store: Store,
  slug: string,
  { payload, idempotencyKey }: { payload: string; idempotencyKey: string | undefined },
  maxQueuedRuns: number,
): Promise<{ runId: string; status: string }> {
  const opened = await store.automations.open(slug);
  if (opened.status === 'rejected') throw await unknownSlug(store, slug);
  if (opened.status === 'disabled') throw disabledError(slug);
  const run = { id: newRunId(), payload, requestId: randomUUID(), idempotencyKey, caller: thisOperator() };
  const verdict = await store.runs.accept(opened.automation, run, acceptLimits(maxQueuedRuns));
  switch (verdict.status) {
    case 'accepted':
      return { runId: verdict.runId, status: 'queued' };
    case 'replayed':
      return { runId: verdict.runId, status: verdict.runStatus };
    case 'reused':
      throw new CommandError(
        'The --idempotency-key was used before with another payload. Use the same payload, or another key for a new run.',
      );
    case 'invalid':
      throw new CommandError(
        `The payload does not fit the schema of ${slug}: ${verdict.problem}. The schema: orc automations show ${slug} --json`,
      );
    case 'full':
      throw fullError(maxQueuedRuns);
    default:
      throw new CommandError(
        `The automation ${slug} was changed at the same time (${verdict.status}). Try again.`,
      );
  }
}

/** @throws UsageError unless it is a JSON object */
async function payloadFrom(
  data: string | undefined,
  { stdin, directory }: CommandContext,
  limitBytes: number,
): Promise<string> {
  if (data === undefined) return EMPTY_PAYLOAD;
  const bytes = await bytesFrom(data, stdin, directory);
  if (bytes.length > limitBytes) {
    throw new CommandError(
      `The payload has ${bytes.length} bytes, more than BODY_LIMIT_BYTES (${limitBytes}) allows. Pass a link to the data instead.`,
    );
  }
  if (bytes.length === 0) return EMPTY_PAYLOAD;
  const read = readJson(bytes);
  if (!read) {
    throw new UsageError(
      'The payload is not valid JSON in UTF-8. In a shell, put it in single quotes, or pass a file: -d @payload.json',
    );
  }
  if (!isMap(read.value)) {
    throw new UsageError('The payload is not a JSON object. Wrap the value in one, such as {"value": …}.');
  }
  return read.text;
}

async function bytesFrom(data: string, stdin: () => TerminalInput, directory: string): Promise<Buffer> {
  if (data === '-' || data === '@-') return buffer(stdin());
  if (!data.startsWith('@')) return Buffer.from(data);
  const file = data.slice(1);
  return readFile(resolve(directory, file)).catch((error: Error) => {
    throw new CommandError(`${file} cannot be read: ${error.message}.`, { cause: error });
  });
}
