import fc from 'fast-check';
import { expect, test } from 'vitest';
import { openTestStore } from '../support/store.ts';

const { redis } = openTestStore();

const argument = fc.oneof(
  fc.string({ unit: 'binary' }),
  fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.from(bytes)),
);

test('Redis gets the arguments of a command byte for byte, whichever of them are binary', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(argument, { minLength: 1, maxLength: 20 }), async (args) => {
      const received = await redis.callBuffer('EVAL', 'return ARGV', 0, ...args);
      expect(received).toEqual(args.map((arg) => Buffer.from(arg)));
    }),
  );
});
