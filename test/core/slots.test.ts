import { expect, test } from 'vitest';
import { slotsHeldSince } from '../../src/core/slots.ts';

const at = (...seconds: number[]) => seconds.map((second) => new Date(second * 1000));

test.each<[startedAt: Date[], slots: number | undefined, since: number | undefined]>([
  [at(10, 30, 20), 3, 30],
  [at(10, 30, 20, 5), 3, 30],
  [at(10, 30), 3, undefined],
  [at(10, 30), undefined, undefined],
  [[], 0, undefined],
])(
  'runs that started at %j hold all of %s slots since the latest of them started',
  (startedAt, slots, since) => {
    expect(slotsHeldSince(startedAt, slots)).toEqual(
      since === undefined ? undefined : new Date(since * 1000),
    );
  },
);
