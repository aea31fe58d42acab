/**
 * One event of an agent's transcript, as it is stored in the run's log and printed by `orc runs logs --json`. Texts are the
 * agent's: whoever shows them has to make control characters visible. Secrets are masked.
 */
export type AgentEvent = { at: string; cutCharacters?: number } & AgentEventContent;

export type AgentEventContent =
  /** What orc told the agent; the payload is beside it. */
  | { type: 'prompt'; text: string }
  /** Whole lines of what the agent said, or thought. */
  | { type: 'message'; text: string }
  | { type: 'thought'; text: string }
  | { type: 'plan'; entries: PlanEntry[] }
  /** A tool call that began or has a new status. Its output comes with the last one. */
  | {
      type: 'tool';
      id: string;
      title: string;
      kind: string;
      status: string;
      paths?: string[];
      output?: string;
    }
  /** What the agent asked for, and orc's answer. */
  | { type: 'permission'; title: string; kind: string; isAllowed: boolean }
  /** After each turn, as far as the agent reports it: tokens in its context, and the cost of the session so far. */
  | { type: 'usage'; usedTokens?: number; contextTokens?: number; cost?: AgentCost }
  /** Why the agent's turn ended, in the protocol's words. */
  | { type: 'stop'; reason: string }
  /** Whole lines of what the check prints while it runs. */
  | { type: 'check_output'; text: string }
  /** How the check ended; `output` is the end of what is in no event before it. */
  | { type: 'check'; attempt: number; isPassed: boolean; exitCode?: number; signal?: string; output?: string }
  /** What the agent does not say by the protocol, or what went wrong. */
  | { type: 'error'; text: string };

export interface PlanEntry {
  text: string;
  status: string;
}

/** As the agent reports it. */
export interface AgentCost {
  amount: number;
  /** ISO 4217, such as USD. */
  currency: string;
}

/** What is known of an agent's attempt besides its outcome. */
export interface AgentReport {
  /** How often the check ran; absent if it never did. */
  checks?: number;
  /** In the protocol's words. */
  stopReason?: string;
  /** Absent if the agent reports none. */
  cost?: AgentCost;
  /** Branch and commit that the worker pushed. */
  branch?: string;
  commit?: string;
}

/** @returns undefined for what is no event, such as one of a newer version */
function parseAgentEvent(line: string): AgentEvent | undefined {
  try {
    const event = JSON.parse(line) as AgentEvent;
    return typeof event?.type === 'string' ? event : undefined;
  } catch {
    return undefined;
  }
}

/** The events of the text of an entry of a run's log whose source is `agent`. */
export function eventsIn(text: string): AgentEvent[] {
  return text.split('\n').flatMap((line) => parseAgentEvent(line) ?? []);
}
