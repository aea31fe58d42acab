import type { RunLogEntry } from '../store/run-log.ts';
import type { Store } from '../store/store.ts';
import { LogLines } from './live/log-lines.ts';

/** A run's log as its action printed it, without orc's own lines. */
export async function* logBytes(store: Store, runId: string): AsyncGenerator<Buffer> {
  for await (const entries of batches(store, runId)) {
    for (const { source, data } of entries) if (source !== 'orc') yield data;
  }
}

/** A run's log as text to read: without colours, with orc's own lines, control characters shown. */
export async function* logText(store: Store, runId: string): AsyncGenerator<string> {
  let text = '';
  let isFirst = true;
  const lines = new LogLines(
    {
      begin: ({ time, source, summary }) => {
        text += `${isFirst ? '' : '\n'}${new Date(time).toISOString()} ${source === 'orc' ? 'orc: ' : ''}`;
        if (summary !== undefined) text += `${summary}\n`;
        isFirst = false;
      },
      append: (spans) => {
        for (const span of spans) text += span.text;
      },
    },
    false,
  );
  for await (const entries of batches(store, runId)) {
    for (const entry of entries) lines.add({ ...entry, time: entry.time.getTime() });
    yield text;
    text = '';
  }
  if (!isFirst) yield '\n';
}

async function* batches(store: Store, runId: string): AsyncGenerator<RunLogEntry[]> {
  for (let position: string | undefined; ; ) {
    const read = await store.runLogs.read(runId, position);
    if (read.entries.length === 0) return;
    yield read.entries;
    position = read.position;
  }
}
