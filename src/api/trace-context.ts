import type { IncomingHttpHeaders } from 'node:http';
import type { TraceContext } from '../core/run.ts';

/** W3C Trace Context, section 3.2.2. */
const TRACEPARENT = /^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$/;

/** Of section 3.3.1: a key, and a value without comma and equals sign. */
const TRACESTATE_MEMBER = /^[a-z0-9][a-z0-9_*/@-]{0,255}=[ -+--<>-~]{0,255}[!-+--<>-~]$/;

/** What the standard asks everybody to hand on (section 3.3.1.5), and members that it allows. */
const MAX_TRACESTATE_LENGTH = 512;
const MAX_TRACESTATE_MEMBERS = 32;

/** The trace that a request belongs to. Headers that are not what the standard says are ignored, as the standard says. */
export function traceContextOf({ traceparent, tracestate }: IncomingHttpHeaders): TraceContext {
  if (typeof traceparent !== 'string' || !TRACEPARENT.test(traceparent)) return {};
  const state = typeof tracestate === 'string' ? validTracestate(tracestate) : undefined;
  return { traceparent, ...(state !== undefined && { tracestate: state }) };
}

function validTracestate(text: string): string | undefined {
  const members = text
    .split(',')
    .map((member) => member.trim())
    .filter((member) => member !== '');
  const state = members.join();
  const isValid =
    members.length > 0 &&
    members.length <= MAX_TRACESTATE_MEMBERS &&
    state.length <= MAX_TRACESTATE_LENGTH &&
    members.every((member) => TRACESTATE_MEMBER.test(member));
  return isValid ? state : undefined;
}
