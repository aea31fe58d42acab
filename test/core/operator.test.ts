import { expect, test } from 'vitest';
import { InputError } from '../../src/core/input-error.ts';
import { parseOperatorName } from '../../src/core/operator.ts';

test.each(['ada', 'Ada.Lovelace', 'ada@example.com', 'ada+orc@example.com', '0', 'a'.repeat(128)])(
  'the operator name %s is accepted',
  (name) => {
    expect(parseOperatorName(name)).toBe(name);
  },
);

test.each(['', ' ada', 'ada lovelace', '-ada', '.', '../ada', 'ada\n', 'ada<b>', 'ädä', 'a'.repeat(129)])(
  'the operator name %j is refused, with what to write instead',
  (name) => {
    expect(() => parseOperatorName(name)).toThrow(InputError);
  },
);
