import { expect, test } from 'vitest';
import { formatDuration, formatRate, parseDuration, parseRate, parseTime } from '../../src/core/durations.ts';
import { InputError } from '../../src/core/input-error.ts';

test.each([
  ['0', 0],
  ['0s', 0],
  ['500ms', 500],
  ['90s', 90_000],
  ['1.5m', 90_000],
  ['24h', 86_400_000],
  ['7d', 604_800_000],
])('the duration %s is %i milliseconds', (text, ms) => {
  expect(parseDuration(text)).toBe(ms);
});

test.each([
  '',
  '10',
  '10 m',
  '-1s',
  '+1s',
  '1e3s',
  '10M',
  '10min',
  's',
  '.5s',
  '1.s',
  ' 1s',
  '1s ',
  '0x10s',
  'Infinity',
  '١s',
])('the duration %j is refused with an example of one that is right', (text) => {
  expect(() => parseDuration(text)).toThrow(InputError);
  expect(() => parseDuration(text)).toThrow('500ms, 90s, 10m, 24h, 7d');
});

test.each([
  ['5/s', { limit: 5, windowMs: 1000 }],
  ['60/m', { limit: 60, windowMs: 60_000 }],
  ['1/h', { limit: 1, windowMs: 3_600_000 }],
  ['1000/d', { limit: 1000, windowMs: 86_400_000 }],
])('the rate %s is read, and written as it was typed', (text, rate) => {
  expect(parseRate(text)).toEqual(rate);
  expect(formatRate(rate)).toBe(text);
});

test.each(['', '60', '0/m', '-1/m', '1.5/m', '60/ms', '60/min', '60 / m', '/m', '60/'])(
  'the rate %j is refused with an example of one that is right',
  (text) => {
    expect(() => parseRate(text)).toThrow(InputError);
    expect(() => parseRate(text)).toThrow('5/s, 60/m, 1000/d');
  },
);

test.each([
  [45, '45 ms'],
  [1234, '1.2 s'],
  [185_000, '3 min 5 s'],
  [7_440_000, '2 h 4 min'],
])('%i milliseconds are shown to people as %s', (ms, text) => {
  expect(formatDuration(ms)).toBe(text);
});

test.each([
  ['1h', '2026-01-31T11:00:00.000Z'],
  ['2d', '2026-01-29T12:00:00.000Z'],
  ['2026-01-30T18:00Z', '2026-01-30T18:00:00.000Z'],
  ['2026-01-30T18:00:30.5+02:00', '2026-01-30T16:00:30.500Z'],
])('the time %s is understood', (text, expected) => {
  expect(parseTime(text, Date.parse('2026-01-31T12:00Z')).toISOString()).toBe(expected);
});

test('a time without an offset is local, a date alone is its beginning', () => {
  expect(parseTime('2026-01-30T18:00', 0)).toEqual(new Date(2026, 0, 30, 18));
  expect(parseTime('2026-01-30', 0)).toEqual(new Date(2026, 0, 30));
});

test.each(['', '0', '1', 'yesterday', '1 h', '30.01.2026', '2026-13-01', '2026-01-30 18:00', '18:00', '-1h'])(
  'the time %j is refused with examples of what is right',
  (text) => {
    expect(() => parseTime(text, 0)).toThrow(InputError);
    expect(() => parseTime(text, 0)).toThrow('30m, 1h or 2d, or a date: 2026-01-31T18:00');
  },
);
