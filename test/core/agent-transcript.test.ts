import { expect, test } from 'vitest';
import type { AgentEventContent } from '../../src/core/agent-event.ts';
import { transcriptText } from '../../src/core/agent-transcript.ts';

const shown = (content: AgentEventContent, cutCharacters?: number) =>
  transcriptText({ at: '2026-01-02T03:04:05.678Z', ...content, ...(cutCharacters && { cutCharacters }) });

test.each<[AgentEventContent, string]>([
  [{ type: 'message', text: 'a\nb\n' }, 'a\nb\n'],
  [{ type: 'thought', text: 'a\nb' }, 'thought: a\n    b\n'],
  [
    {
      type: 'plan',
      entries: [
        { text: 'a', status: 'completed' },
        { text: 'b', status: 'in_progress' },
        { text: 'c', status: 'pending' },
      ],
    },
    'plan:\n    [x] a\n    [>] b\n    [ ] c\n',
  ],
  [
    {
      type: 'tool',
      id: '1',
      title: 'Edit',
      kind: 'edit',
      status: 'completed',
      paths: ['/a'],
      output: 'x\ny\n',
    },
    'tool edit, completed: Edit (/a)\n    x\n    y\n',
  ],
  [
    { type: 'permission', title: 'curl', kind: 'fetch', isAllowed: false },
    'permission denied, fetch: curl\n',
  ],
  [
    { type: 'usage', usedTokens: 5, contextTokens: 9, cost: { amount: 0.01234567, currency: 'USD' } },
    'usage: 5 of 9 tokens of context, 0.0123 USD\n',
  ],
  [{ type: 'stop', reason: 'end_turn' }, 'the agent stopped: end_turn\n'],
  [
    { type: 'check', attempt: 2, isPassed: false, exitCode: 1, output: 'a\nb\n' },
    'check 2 failed, exit code 1\n    a\n    b\n',
  ],
  [{ type: 'check_output', text: 'one\ntwo' }, '    one\n    two\n'],
  [{ type: 'check', attempt: 1, isPassed: false, signal: 'SIGTERM' }, 'check 1 failed, SIGTERM\n'],
])('%j is shown as %j', (event, text) => {
  expect(shown(event)).toBe(text);
});

test('what was cut of an event is told', () => {
  expect(shown({ type: 'message', text: 'abc' }, 900)).toBe('abc\n    … 900 characters cut\n');
});

test('nothing that an agent says acts on a terminal', () => {
  const hostile = '\u001b]0;owned\u0007\r\u009b2J\u202e';
  const events: AgentEventContent[] = [
    { type: 'message', text: hostile },
    { type: 'plan', entries: [{ text: hostile, status: hostile }] },
    {
      type: 'tool',
      id: hostile,
      title: hostile,
      kind: hostile,
      status: hostile,
      paths: [hostile],
      output: hostile,
    },
    { type: 'permission', title: hostile, kind: hostile, isAllowed: true },
    { type: 'usage', cost: { amount: 1, currency: hostile } },
    { type: 'stop', reason: hostile },
    { type: 'check', attempt: 1, isPassed: true, output: hostile },
    { type: 'error', text: hostile },
  ];
  for (const event of events) expect(shown(event).replaceAll('\n', '')).not.toMatch(/[\p{Cc}\p{Cf}]/u);
});
