import type { AgentCost, AgentEventContent, PlanEntry } from '../../../core/agent-event.ts';
import type { OutputLog } from '../../output-log.ts';

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

/**
 * Writes what an agent tells into the run's log: chunks are joined to lines, and tool calls appear when they begin and when
 * their status changes. What is long is cut within its event, so that a long session stays whole: the longer it gets, the
 * shorter its events. Nothing here throws, whatever an agent sends.
 */
export class Transcript {
  readonly #log: Pick<OutputLog, 'event' | 'masked'>;
  readonly #onCost: (cost: AgentCost) => void;
  readonly #tools = new Map<string, Tool>();
  #pending: { type: 'message' | 'thought'; text: string } | undefined;
  #timer: NodeJS.Timeout | undefined;
  #written = 0;
  #usage: Omit<Extract<AgentEventContent, { type: 'usage' }>, 'type'> = {};
  #message = '';
  #isMessageOver = true;

  /** @param onCost is told what the session has cost so far */
  constructor(log: Pick<OutputLog, 'event' | 'masked'>, onCost: (cost: AgentCost) => void) {
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
        this.#addText('message', textOfContent(update['content']));
        break;
      case 'agent_thought_chunk':
        this.#addText('thought', textOfContent(update['content']));
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

  /** The kind of tool of a call that the agent told of earlier, and its title. */
  tool(id: string): { kind: string; title: string } | undefined {
    return this.#tools.get(id);
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
    if (type === 'message') this.#keepMessage(text);
    if (this.#pending?.type !== type) this.#flush();
    const pending = this.#pending ?? { type, text: '' };
    pending.text += text;
    this.#pending = pending;
    if (pending.text.length > MAX_PENDING) this.#flushWords();
    else this.#timer ??= setTimeout(() => this.#flushLines(), FLUSH_MS);
  }

  #keepMessage(text: string): void {
    if (this.#isMessageOver && text.trim() !== '') {
      this.#message = '';
      this.#isMessageOver = false;
    }
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

  /** All but the last word, which may be the beginning of a secret. */
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
    if (pending) this.#writeText(pending.type, pending.text);
  }

  #writeText(type: 'message' | 'thought', text: string): void {
    if (text.trim() !== '') this.#write({ type, text: text.trimEnd() });
  }

  #addPlan(entries: unknown): void {
    const shown = (Array.isArray(entries) ? entries : []).slice(0, MAX_ENTRIES).map(
      (entry): PlanEntry => ({
        text: title(entry?.content),
        status: title(entry?.status),
      }),
    );
    if (shown.length > 0) this.add({ type: 'plan', entries: shown });
  }

  #addTool(update: Fields): void {
    const id = title(update['toolCallId']);
    const known = this.#tools.get(id);
    const tool: Tool = {
      title: title(update['title'] ?? known?.title),
      kind: title(update['kind'] ?? known?.kind ?? 'other'),
      status: title(update['status'] ?? known?.status ?? 'pending'),
      paths: pathsIn(update['locations']) ?? known?.paths ?? [],
      isWritten: known?.isWritten === true,
    };
    const isOver = tool.status === 'completed' || tool.status === 'failed';
    // The first state is often told in two steps, the second of which says what the tool is called with.
    const isNews = !known?.isWritten || known.status !== tool.status;
    const output = isOver ? outputOf(update) : undefined;
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
    if (typeof used === 'number') this.#usage.usedTokens = used;
    if (typeof size === 'number') this.#usage.contextTokens = size;
    const { amount, currency } = (cost ?? {}) as { amount?: unknown; currency?: unknown };
    if (typeof amount !== 'number' || !(amount >= 0) || typeof currency !== 'string') return;
    this.#usage.cost = { amount, currency: currency.slice(0, 8) };
    this.#onCost(this.#usage.cost);
  }

  #masked(content: AgentEventContent): AgentEventContent {
    if ('text' in content) return { ...content, text: this.#log.masked(content.text) };
    if (!('output' in content) || content.output === undefined) return content;
    return { ...content, output: this.#log.masked(content.output) };
  }

  #write(content: AgentEventContent): void {
    const halvings = Math.floor(this.#written / SHARE);
    const { event, cutCharacters } = shortened(
      this.#masked(content),
      Math.max(MAX_TEXT / 2 ** halvings, LEAST_TEXT),
    );
    this.#written += JSON.stringify(event).length;
    this.#log.event({
      at: new Date().toISOString(),
      ...event,
      ...(cutCharacters > 0 && { cutCharacters }),
    });
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

/** One word or line of the protocol. */
function title(value: unknown): string {
  return typeof value === 'string' ? value.slice(0, MAX_TITLE) : '';
}

function pathsIn(locations: unknown): string[] | undefined {
  if (!Array.isArray(locations)) return undefined;
  return locations.slice(0, MAX_ENTRIES).map((location) => title(location?.path));
}

/** What a tool call printed or changed, as text. */
function outputOf({ content, rawOutput }: Fields): string | undefined {
  if (Array.isArray(content) && content.length > 0) {
    return content.slice(0, MAX_ENTRIES).map(textOfToolContent).join('\n').trim();
  }
  const { output } = (rawOutput ?? {}) as { output?: unknown };
  return typeof output === 'string' ? output.trim() : undefined;
}

function textOfToolContent(content: unknown): string {
  const { type, content: block, path } = (content ?? {}) as Record<string, unknown>;
  if (type === 'content') return textOfContent(block);
  return type === 'diff' ? `changed ${title(path)}` : '';
}

function textOfContent(block: unknown): string {
  const { type, text, name, uri } = (block ?? {}) as Record<string, unknown>;
  if (typeof text === 'string') return text;
  return type === 'resource_link' ? `[${title(name)}](${title(uri)})` : '';
}
