import fc from 'fast-check';
import { Command } from 'ioredis';
import { expect, test } from 'vitest';
import '../../src/store/command-encoding.ts';
import { type CommandValues, EncodedCommand } from '../../src/store/encoded-command.ts';
import { newRunId } from '../../src/store/run-id.ts';

type Argument = string | Buffer;

const ONE: CommandValues = {
  id: 'run_01900000-0000-7000-8000-000000000001',
  timestamp: 1_700_000_000_123,
  acceptedAt: 1_700_000_000_456,
  data: '{"sample":"one"}',
};
const TWO: CommandValues = {
  id: 'run_01a23456-789a-7bcd-9ef0-123456789abc',
  timestamp: 1_800_000_000_789,
  acceptedAt: 1_800_000_000_321,
  data: '{"sample":"two, which is longer: é"}',
};

function float64(value: number): Buffer {
  const bytes = Buffer.alloc(9, 0xcb);
  bytes.writeDoubleBE(value, 1);
  return bytes;
}

/** A command as ioredis encodes it. */
function bytesOf(args: Argument[]): Buffer {
  return Buffer.from(new Command('evalsha', args).toWritable({}));
}

/** The encoding of a command whose arguments follow from its values. */
function encodingOf(argsOf: (values: CommandValues) => Argument[]): EncodedCommand | undefined {
  const [one, two] = [ONE, TWO].map((values) => ({ values, bytes: bytesOf(argsOf(values)) }));
  return one && two && EncodedCommand.from(one, two);
}

const constant = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 50 }),
  fc.uint8Array({ maxLength: 50 }).map((bytes) => Buffer.from(bytes)),
);
const constants = fc.array(constant, { maxLength: 5 });

const values: fc.Arbitrary<CommandValues> = fc.record({
  id: fc.constant(0).map(() => newRunId()),
  timestamp: fc.integer({ min: 2 ** 32, max: 2 ** 48 }),
  acceptedAt: fc.integer({ min: 1e12, max: 1e13 - 1 }),
  data: fc.oneof(fc.string({ unit: 'binary' }), fc.json(), fc.constant('x'.repeat(300_000))),
});

test('what is written into a copy is what ioredis encodes, whatever the values and whatever stays the same', () => {
  fc.assert(
    fc.property(constants, constants, values, (before, after, each) => {
      const argsOf = ({ id, timestamp, acceptedAt, data }: CommandValues): Argument[] => [
        ...before,
        `prefix:${id}`,
        Buffer.concat([Buffer.from(`\xa5${id}`, 'latin1'), float64(timestamp)]),
        data,
        ...after,
        id,
        `${acceptedAt}`,
      ];
      const encoding = encodingOf(argsOf) ?? expect.fail();
      expect(encoding.encode(each).equals(bytesOf(argsOf(each)))).toBe(true);
    }),
    { numRuns: 200 },
  );
});

test.each<[string, (values: CommandValues) => Argument[]]>([
  ['the length of the data', ({ id, data }) => [id, `${data.length}`, data]],
  ['the time in another form', ({ id, timestamp, data }) => [id, `${timestamp}`, data]],
  ['the data in another form', ({ id, data }) => [id, data.toUpperCase()]],
  ['the data twice', ({ id, data }) => [id, data, data]],
  ['a part of the id', ({ id, data }) => [id, id.slice(0, 12), data]],
])('a command with %s is not encoded in this way', (_, argsOf) => {
  expect(encodingOf(argsOf)).toBeUndefined();
});
