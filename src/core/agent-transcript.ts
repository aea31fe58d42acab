import type { AgentCost, AgentEvent } from './agent-event.ts';
import { visible } from './visible-text.ts';

/** Before the lines of what belongs to the line above. */
const INDENT = '    ';

const PLAN_MARKS: Readonly<Record<string, string>> = { completed: 'x', in_progress: '>' };

/** An event of an agent's transcript for a terminal: lines, each with its line break. */
export function transcriptText(event: AgentEvent): string {
  const text = safe(textOf(event).replace(/\n+$/, ''));
  const cut = event.cutCharacters === undefined ? '' : `\n${INDENT}… ${event.cutCharacters} characters cut`;
  return `${text}${cut}\n`;
}

function textOf(event: AgentEvent): string {
  switch (event.type) {
    case 'prompt':
      return `prompt: ${indented(event.text)}`;
    case 'message':
      return event.text;
    case 'thought':
      return `thought: ${indented(event.text)}`;
    case 'plan':
      return [
        'plan:',
        ...event.entries.map(({ text, status }) => `[${PLAN_MARKS[status] ?? ' '}] ${text}`),
      ].join(`\n${INDENT}`);
    case 'tool': {
      const { kind, title, status, paths = [], output } = event;
      const places = paths.filter((path) => !title.includes(path)).join(' ');
      const line = `tool ${kind}, ${status}: ${title}${places === '' ? '' : ` (${places})`}`;
      return output === undefined ? indented(line) : `${indented(line)}\n${INDENT}${indented(output)}`;
    }
    case 'permission':
      return `permission ${event.isAllowed ? 'given' : 'denied'}, ${event.kind}: ${indented(event.title)}`;
    case 'usage':
      return usageLine(event);
    case 'stop':
      return `the agent stopped: ${event.reason}`;
    case 'check_output':
      return `${INDENT}${indented(event.text)}`;
    case 'check': {
      const how = event.exitCode === undefined ? event.signal : `exit code ${event.exitCode}`;
      const line = `check ${event.attempt} ${event.isPassed ? 'passed' : 'failed'}, ${how}`;
      return event.output === undefined ? line : `${line}\n${INDENT}${indented(event.output)}`;
    }
    case 'error':
      return `error: ${indented(event.text)}`;
    default:
      return JSON.stringify(event);
  }
}

function usageLine({ usedTokens, contextTokens, cost }: Extract<AgentEvent, { type: 'usage' }>): string {
  const parts = [
    usedTokens !== undefined && `${usedTokens} of ${contextTokens} tokens of context`,
    cost && writeCost(cost),
  ].filter((part) => typeof part === 'string');
  return `usage: ${parts.join(', ')}`;
}

/** Such as `0.0132 USD`. */
export function writeCost({ amount, currency }: AgentCost): string {
  return `${Number(amount.toFixed(amount < 1 ? 4 : 2))} ${visible(currency)}`;
}

function indented(text: string): string {
  return text.replace(/\n+$/, '').replaceAll('\n', `\n${INDENT}`);
}

function safe(text: string): string {
  return visible(text.replaceAll('\r\n', '\n'), '\n\t');
}
