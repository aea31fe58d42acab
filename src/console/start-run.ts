import { randomUUID } from 'node:crypto';
import { isMap } from '../core/automation-entry.ts';
import { EMPTY_PAYLOAD, readJson } from '../core/payload.ts';
import { newRunId } from '../store/run-id.ts';
import type { Store } from '../store/store.ts';
import type { ConsoleSettings } from './dependencies.ts';

/** How long Redis may take to accept a run, in milliseconds. */
const ACCEPT_MS = 5000;

/** The machine of a caller who is an operator of the console. */
const CONSOLE = 'console';

export type StartedRun = { runId: string } | { problem: string };

/** Starts a run as `orc trigger` does. @param operator name of who asks for it */
export async function startRun(
  store: Store,
  slug: string,
  { text, operator }: { text: string; operator: string },
  { maxQueuedRuns, bodyLimitBytes }: ConsoleSettings,
): Promise<StartedRun> {
  const payload = readPayload(text, bodyLimitBytes);
  if ('problem' in payload) return payload;
  const opened = await store.automations.open(slug);
  if (opened.status !== 'authenticated')
    return { problem: `The automation is ${opened.status}: it takes no runs.` };
  const caller = { user: operator, host: CONSOLE };
  const run = { id: newRunId(), payload: payload.json, requestId: randomUUID(), caller };
  const verdict = await store.runs.accept(opened.automation, run, {
    endsAt: Date.now() + ACCEPT_MS,
    maxQueuedRuns,
  });
  switch (verdict.status) {
    case 'accepted':
      return { runId: verdict.runId };
    case 'invalid':
      return { problem: `The payload does not fit the schema of ${slug}: ${verdict.problem}.` };
    case 'full':
      return {
        problem: `The queue is full: ${maxQueuedRuns} runs wait (MAX_QUEUED_RUNS). Add workers, or try again later.`,
      };
    default:
      return {
        problem: `The automation ${slug} was changed at the same time (${verdict.status}). Try again.`,
      };
  }
}

function readPayload(text: string, limitBytes: number): { json: string } | { problem: string } {
  const bytes = Buffer.from(text);
  if (bytes.length > limitBytes) {
    return {
      problem: `The payload has ${bytes.length} bytes, more than BODY_LIMIT_BYTES (${limitBytes}) allows. Pass a link to the data instead.`,
    };
  }
  if (text.trim() === '') return { json: EMPTY_PAYLOAD };
  const read = readJson(bytes);
  if (!read) return { problem: 'The payload is not valid JSON.' };
  if (!isMap(read.value)) {
    return { problem: 'The payload is not a JSON object. Wrap the value in one, such as {"value": …}.' };
  }
  return { json: read.text };
}
