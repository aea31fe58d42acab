import { type AgentEvent, eventsIn } from '../../core/agent-event.ts';
import { transcriptText } from '../../core/agent-transcript.ts';
import { gapFinder } from '../../core/log-gaps.ts';
import { type LogSpan, TerminalText } from './terminal-text.ts';

/** A piece of a run's log, as the console and the browser both know it. */
export interface LogChunk {
  /** Milliseconds since the epoch. */
  time: number;
  attempt: number;
  /** One of the action's outputs, `agent` for the transcript of an agent, or `orc` itself. */
  source: string;
  /** Number of bytes of the attempt's log before it. */
  offset: number;
  data: Uint8Array;
}

/** The beginning of a line on the page. */
export interface LogLineStart {
  time: number;
  /** As in {@link LogChunk}; `cut` for the remark that output is missing. */
  source: string;
  /** What is seen of it until it is unfolded; then it has further lines. */
  summary?: string;
}

/** Where lines go: into a page, or into the browser's document. */
export interface LogLineSink {
  begin(line: LogLineStart): void;
  /** Adds to the line that was begun last. */
  append(spans: readonly LogSpan[]): void;
}

/** Makes lines of the pieces of a log. Each output of each attempt has colours and unfinished characters of its own. */
export class LogLines {
  readonly #sink: LogLineSink;
  readonly #cutBefore: ReturnType<typeof gapFinder>;
  readonly #texts = new Map<string, TerminalText>();
  /** Whose line is the latest and has not ended; empty if there is none. */
  #open = '';

  /** @param startsLate whether the first piece is not the beginning of the log */
  constructor(sink: LogLineSink, startsLate: boolean) {
    this.#sink = sink;
    this.#cutBefore = gapFinder(startsLate);
  }

  add({ time, attempt, source, offset, data }: LogChunk): void {
    const cutBytes = this.#cutBefore({ attempt, offset, bytes: data.length });
    if (cutBytes > 0) {
      this.#texts.clear();
      this.#open = '';
      this.#sink.begin({ time, source: 'cut' });
      this.#sink.append([{ text: `${cutBytes} bytes of output were cut here`, style: '' }]);
    }
    if (source === 'agent') {
      this.#open = '';
      for (const event of eventsIn(new TextDecoder().decode(data))) this.#addEvent(time, event);
      return;
    }
    const owner = `${attempt} ${source}`;
    const text = this.#texts.get(owner) ?? new TerminalText();
    this.#texts.set(owner, text);
    const begin = () => {
      if (this.#open !== owner) this.#sink.begin({ time, source });
      this.#open = owner;
    };
    for (const [index, part] of text.add(data).entries()) {
      if (index > 0) {
        begin();
        this.#open = '';
      }
      if (part.length === 0) continue;
      begin();
      this.#sink.append(part);
    }
  }

  /** What an agent says, and its check prints, stays as it is; of tool calls, thoughts and the like there is one line until they are unfolded. */
  #addEvent(time: number, event: AgentEvent): void {
    const source = `agent ${event.type}`;
    const [first = '', ...others] = transcriptText(event).trimEnd().split('\n');
    const print = (text: string, summary?: string) => {
      this.#sink.begin({ time, source, ...(summary !== undefined && { summary }) });
      this.#sink.append([{ text, style: '' }]);
    };
    const isText = event.type === 'message' || event.type === 'check_output';
    if (isText) for (const line of [first, ...others]) print(line);
    else if (others.length > 0) print(others.join('\n'), first);
    else print(first);
  }
}

/** A whole line. */
export interface LogLine extends LogLineStart {
  spans: LogSpan[];
}

/** The lines of a log, or of its end. */
export function linesOf(chunks: Iterable<LogChunk>, startsLate: boolean): LogLine[] {
  const lines: LogLine[] = [];
  const sink: LogLineSink = {
    begin: (line) => lines.push({ ...line, spans: [] }),
    append: (spans) => lines.at(-1)?.spans.push(...spans),
  };
  const building = new LogLines(sink, startsLate);
  for (const chunk of chunks) building.add(chunk);
  return lines;
}
