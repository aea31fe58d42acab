import { StringDecoder } from 'node:string_decoder';
import type { AgentCost, AgentEventContent, PlanEntry } from '../../../core/agent-event.ts';
import { LastLine } from '../../last-line.ts';
import type { OutputLog } from '../../output-log.ts';
import type { MaskedStream } from '../../secret-mask.ts';

/** What the agent says is written after this long, in milliseconds, if a line of it is complete. */
const FLUSH_MS = 1000;

/** Longest text of one event, in characters. */
const MAX_TEXT = 8000;

/** Text that is written before a line of it is complete, in characters. */
const MAX_PENDING = 4000;

/** Whenever so many characters are written, the longest text of an event is halved, down to {@link LEAST_TEXT}. */
const SHARE = 128 * 1024;
const LEAST_TEXT = 200;

/** Entries of a plan, and paths of a tool call. */
const MAX_ENTRIES = 50;

/** Longest title, path or word of the protocol, in characters. */
const MAX_TITLE = 300;

/** Longest sentence that the agent has a part in, in characters. */
const MAX_SENTENCE = 1000;

/** Of the end of what a check prints, in characters. */
const MAX_CHECK_END = 16_000;

/** Tool calls that are known at a time. */
const MAX_TOOLS = 1000;

/** Of the agent's last message, in characters: it may become the result. */
const MAX_LAST_MESSAGE = 16_000;

/** What is left out of a tool call until its state changes. */
interface Tool {
  title: string;
  kind: string;
  status: string;
  paths: string[];
  /** Whether the present state is in the transcript. */
  isWritten: boolean;
}

type Fields = Readonly<Record<string, unknown>>;

/** What comes in pieces, and is written in lines. */
type TextType = 'message' | 'thought' | 'check_output';

type CheckEnd = Omit<Extract<AgentEventContent, { type: 'check' }>, 'type' | 'output'>;

/** What a check prints: its beginning is written as it comes, and its end when it has ended. */
class CheckOutput {
  readonly #decoder = new StringDecoder('utf8');
  readonly #secrets: MaskedStream;
  readonly lastLine = new LastLine();
  shownCharacters = 0;
  end = '';
  cutCharacters = 0;

  constructor(secrets: MaskedStream) {
    this.#secrets = secrets;
  }

  /** @returns what of it is to be written now */
  add(data: Buffer, maxShown: number): string {
    return this.#take(this.#secrets.write(data), maxShown);
  }

  /** @returns what is to be written besides */
  finish(maxShown: number): string {
    return this.#take(this.#secrets.end(), maxShown);
  }

  #take(masked: Buffer, maxShown: number): string {
    this.lastLine.add(masked);
    const text = this.#decoder.write(masked);
    const shown = text.slice(0, Math.max(maxShown - this.shownCharacters, 0));
    this.shownCharacters += shown.length;
    const end = this.end + text.slice(shown.length);
    this.end = end.slice(-MAX_CHECK_END);
    this.cutCharacters += end.length - this.end.length;
    return shown;
  }
}

type TranscriptLog = Pick<OutputLog, 'event' | 'masked' | 'maskedStream'>;

/**
 * Writes what an agent tells into the run's log: chunks are joined to lines, and tool calls appear when they begin and when
 * their status changes. What is long is cut within its event, so that a long session stays whole: the longer it gets, the
 * shorter its events. Nothing here throws, whatever an agent sends.
 */
export class Transcript {
  readonly #log: TranscriptLog;
  readonly #onCost: (cost: AgentCost) => void;
  readonly #tools = new Map<string, Tool>();
  /** Without the secrets in it. */
  #pending: { type: TextType; text: string; secrets: MaskedStream } | undefined;
  #check: CheckOutput | undefined;
  #timer: NodeJS.Timeout | undefined;
  #written = 0;
  #usage: Omit<Extract<AgentEventContent, { type: 'usage' }>, 'type'> = {};
  #message = '';
  #isMessageOver = true;

  /** @param onCost is told what the session has cost so far */
  constructor(log: TranscriptLog, onCost: (cost: AgentCost) => void) {
    this.#log = log;
    this.#onCost = onCost;
  }

  /** The last thing that the agent said; empty if it said nothing. */
  get lastMessage(): string {
    return this.#message.trim();
  }

  get cost(): AgentCost | undefined {
    return this.#usage.cost;
  }

  /** Adds an event of orc. */
  add(content: AgentEventContent): void {
    this.#flush();
    this.#write(content);
  }

  /** Adds what an agent tells: the `update` of a `session/update` (Agent Client Protocol, "Prompt Turn"). */
  update(update: Fields): void {
    switch (update['sessionUpdate']) {
      case 'agent_message_chunk':
        this.#addText('message', this.#textOfContent(update['content']));
        break;
      case 'agent_thought_chunk':
        this.#addText('thought', this.#textOfContent(update['content']));
        break;
      case 'plan':
        this.#addPlan(update['entries']);
        break;
      case 'tool_call':
      case 'tool_call_update':
        this.#addTool(update);
        break;
      case 'usage_update':
        this.#keepUsage(update);
        break;
    }
  }

  /**
   * Adds what the agent asked permission for, with the answer.
   *
   * @param isAllowed decides by the kind of tool
   */
  permission(asked: Fields, isAllowed: (kind: string) => boolean): boolean {
    const known = this.#tools.get(this.#word(asked['toolCallId']));
    const kind = this.#word(asked['kind'] ?? known?.kind ?? 'other');
    const title = this.#word(asked['title'] ?? known?.title);
    const answer = isAllowed(kind);
    this.add({ type: 'permission', title, kind, isAllowed: answer });
    return answer;
  }

  /** Adds what went wrong. @returns the text as it was added: without secrets, and not too long */
  error(text: string): string {
    const sentence = this.sentence(text);
    this.add({ type: 'error', text: sentence });
    return sentence;
  }

  /** A text that the agent has a part in, without secrets, and not too long. */
  sentence(text: string): string {
    return shortText(this.#log.masked(text), MAX_SENTENCE);
  }

  /** Adds what the check prints. */
  checkOutput(data: Buffer): void {
    this.#check ??= new CheckOutput(this.#log.maskedStream());
    this.#append('check_output', this.#check.add(data, this.#maxLength()));
  }

  /** Adds how the check ended. @returns the last line that it printed */
  endCheck(how: CheckEnd): string | undefined {
    const check = this.#check;
    this.#check = undefined;
    if (check) this.#append('check_output', check.finish(this.#maxLength()));
    this.#flush();
    const end = check?.end.trimEnd() ?? '';
    this.#write({ type: 'check', ...how, ...(end !== '' && { output: end }) }, check?.cutCharacters);
    return check?.lastLine.text();
  }

  /** Adds why the agent's turn ended, with what it has used by then. */
  endTurn(reason: string): void {
    this.#flush();
    if (Object.keys(this.#usage).length > 0) this.#write({ type: 'usage', ...this.#usage });
    this.#write({ type: 'stop', reason });
    this.#isMessageOver = true;
  }

  /** Adds what is left. */
  end(): void {
    this.#flush();
  }

  #addText(type: 'message' | 'thought', text: string): void {
    if (type === 'message' && this.#isMessageOver && text.trim() !== '') {
      this.#flush();
      this.#message = '';
      this.#isMessageOver = false;
    }
    if (this.#pending?.type !== type) this.#flush();
    const { secrets } = this.#pendingOf(type);
    this.#append(type, secrets.write(Buffer.from(text)).toString());
  }

  #pendingOf(type: TextType) {
    if (this.#pending?.type !== type) this.#flush();
    this.#pending ??= { type, text: '', secrets: this.#log.maskedStream() };
    return this.#pending;
  }

  /** @param text without secrets */
  #append(type: TextType, text: string): void {
    if (text === '') return;
    const pending = this.#pendingOf(type);
    pending.text += text;
    if (type === 'message') this.#keepMessage(text);
    if (pending.text.length > MAX_PENDING) this.#flushWords();
    else this.#timer ??= setTimeout(() => this.#flushLines(), FLUSH_MS);
  }

  #keepMessage(text: string): void {
    this.#message = `${this.#message}${text}`.slice(-MAX_LAST_MESSAGE);
  }

  #flushLines(): void {
    this.#timer = undefined;
    const pending = this.#pending;
    if (!pending) return;
    const end = pending.text.lastIndexOf('\n') + 1;
    this.#writeText(pending.type, pending.text.slice(0, end));
    pending.text = pending.text.slice(end);
    this.#timer = setTimeout(() => this.#flushLines(), FLUSH_MS);
  }

  /** All but the last word. */
  #flushWords(): void {
    const pending = this.#pending;
    const end = (pending?.text.search(/\s\S*$/) ?? -1) + 1;
    if (!pending || end === 0) {
      this.#flush();
      return;
    }
    this.#writeText(pending.type, pending.text.slice(0, end));
    pending.text = pending.text.slice(end);
  }

  #flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const pending = this.#pending;
    this.#pending = undefined;
    if (!pending) return;
    const rest = pending.secrets.end().toString();
    if (pending.type === 'message') this.#keepMessage(rest);
    this.#writeText(pending.type, pending.text + rest);
  }

  #writeText(type: TextType, text: string): void {
    if (text.trim() !== '') this.#write({ type, text: text.trimEnd() });
  }

  #addPlan(entries: unknown): void {
    const shown = (Array.isArray(entries) ? entries : []).slice(0, MAX_ENTRIES).map(
      (entry): PlanEntry => ({
        text: this.#word(entry?.content),
        status: this.#word(entry?.status),
      }),
    );
    if (shown.length > 0) this.add({ type: 'plan', entries: shown });
  }

  #addTool(update: Fields): void {
    const id = this.#word(update['toolCallId']);
    const known = this.#tools.get(id);
    const tool: Tool = {
      title: this.#word(update['title'] ?? known?.title),
      kind: this.#word(update['kind'] ?? known?.kind ?? 'other'),
      status: this.#word(update['status'] ?? known?.status ?? 'pending'),
      paths: this.#pathsIn(update['locations']) ?? known?.paths ?? [],
      isWritten: known?.isWritten === true,
    };
    const isOver = tool.status === 'completed' || tool.status === 'failed';
    // The first state is often told in two steps, the second of which says what the tool is called with.
    const isNews = !known?.isWritten || known.status !== tool.status;
    const output = isOver ? this.#outputOf(update) : undefined;
    this.#isMessageOver = true;
    if (isNews && (tool.status !== 'pending' || known === undefined)) {
      this.add({
        ...{ type: 'tool', id, title: tool.title, kind: tool.kind, status: tool.status },
        ...(tool.paths.length > 0 && { paths: tool.paths }),
        ...(output !== undefined && output !== '' && { output }),
      });
      tool.isWritten = true;
    }
    this.#tools.delete(id);
    if (this.#tools.size >= MAX_TOOLS) this.#tools.delete(this.#tools.keys().next().value ?? '');
    this.#tools.set(id, tool);
  }

  #keepUsage({ used, size, cost }: Fields): void {
    if (isCount(used)) this.#usage.usedTokens = used;
    if (isCount(size)) this.#usage.contextTokens = size;
    const { amount, currency } = (cost ?? {}) as { amount?: unknown; currency?: unknown };
    if (!isCount(amount) || typeof currency !== 'string') return;
    this.#usage.cost = { amount, currency: this.#word(currency).slice(0, 8) };
    this.#onCost(this.#usage.cost);
  }

  #masked(content: AgentEventContent): AgentEventContent {
    if ('text' in content) return { ...content, text: this.#log.masked(content.text) };
    if (!('output' in content) || content.output === undefined) return content;
    return { ...content, output: this.#log.masked(content.output) };
  }

  #maxLength(): number {
    return Math.max(MAX_TEXT / 2 ** Math.floor(this.#written / SHARE), LEAST_TEXT);
  }

  /** @param cutBefore characters that are left out already */
  #write(content: AgentEventContent, cutBefore = 0): void {
    const { event, cutCharacters } = shortened(this.#masked(content), this.#maxLength());
    const cut = cutBefore + cutCharacters;
    this.#written += JSON.stringify(event).length;
    this.#log.event({ at: new Date().toISOString(), ...event, ...(cut > 0 && { cutCharacters: cut }) });
  }

  /** One word or line of the protocol: without secrets before it is cut. */
  #word(value: unknown): string {
    return typeof value === 'string' ? shortText(this.#log.masked(value), MAX_TITLE) : '';
  }

  #pathsIn(locations: unknown): string[] | undefined {
    if (!Array.isArray(locations)) return undefined;
    return locations.slice(0, MAX_ENTRIES).map((location) => this.#word(location?.path));
  }

  /** What a tool call printed or changed, as text. */
  #outputOf({ content, rawOutput }: Fields): string | undefined {
    if (Array.isArray(content) && content.length > 0) {
      const texts = content.slice(0, MAX_ENTRIES).map((each) => this.#textOfToolContent(each));
      return texts.join('\n').trim();
    }
    const { output } = (rawOutput ?? {}) as { output?: unknown };
    return typeof output === 'string' ? output.trim() : undefined;
  }

  #textOfToolContent(content: unknown): string {
    const { type, content: block, path } = (content ?? {}) as Record<string, unknown>;
    if (type === 'content') return this.#textOfContent(block);
    return type === 'diff' ? `changed ${this.#word(path)}` : '';
  }

  #textOfContent(block: unknown): string {
    const { type, text, name, uri } = (block ?? {}) as Record<string, unknown>;
    if (typeof text === 'string') return text;
    return type === 'resource_link' ? `[${this.#word(name)}](${this.#word(uri)})` : '';
  }
}

/** An event whose text is at most so long; of an output, its end is kept. */
function shortened(
  content: AgentEventContent,
  maxLength: number,
): { event: AgentEventContent; cutCharacters: number } {
  if ('text' in content && content.text.length > maxLength) {
    const text = content.text.slice(0, maxLength);
    return { event: { ...content, text }, cutCharacters: content.text.length - text.length };
  }
  if ('output' in content && content.output !== undefined && content.output.length > maxLength) {
    const output = content.output.slice(-maxLength);
    return { event: { ...content, output }, cutCharacters: content.output.length - output.length };
  }
  return { event: content, cutCharacters: 0 };
}

function shortText(text: string, maxLength: number): string {
  return text.length > maxLength ? `${text.slice(0, maxLength - 1)}…` : text;
}

function isCount(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0;
}
