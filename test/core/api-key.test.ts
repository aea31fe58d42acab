import { describe, expect, test } from 'vitest';
import {
  API_KEY_IN_TEXT,
  HASH_OF_NO_KEY,
  hashApiKey,
  isKeyHash,
  isWellFormedApiKey,
  mintApiKey,
} from '../../src/core/api-key.ts';

describe('mintApiKey', () => {
  test('makes keys of one form, each with its own checksum', () => {
    const keys = Array.from({ length: 200 }, mintApiKey);
    for (const key of keys) {
      expect(key).toMatch(/^orc_[0-9A-Za-z]{49}$/);
      expect(isWellFormedApiKey(key)).toBe(true);
    }
    expect(new Set(keys).size).toBe(keys.length);
  });
});

describe('isWellFormedApiKey', () => {
  test('knows the checksum of keys that were issued long ago', () => {
    expect(isWellFormedApiKey(`orc_${'0'.repeat(43)}2CZclj`)).toBe(true);
  });

  test('notices a single wrong character anywhere', () => {
    const key = mintApiKey();
    for (let index = 0; index < key.length; index += 1) {
      const other = key[index] === 'x' ? 'y' : 'x';
      expect(isWellFormedApiKey(key.slice(0, index) + other + key.slice(index + 1))).toBe(false);
    }
  });

  test.each([
    ['nothing', () => ''],
    ['a key without its last character', (key: string) => key.slice(0, -1)],
    ['a key with a character too many', (key: string) => `${key}0`],
    ['a key with a space before it', (key: string) => ` ${key}`],
    ['a key with a line feed after it', (key: string) => `${key}\n`],
    ['a key in capitals', (key: string) => key.toUpperCase()],
    ['a key of another service', (key: string) => key.replace('orc_', 'ghp_')],
  ])('refuses %s', (_, change) => {
    expect(isWellFormedApiKey(change(mintApiKey()))).toBe(false);
  });
});

test('a key is hashed with SHA-256, in hexadecimal', () => {
  expect(hashApiKey('abc')).toBe('ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad');
});

test('keys are found inside other text', () => {
  const [one, two] = [mintApiKey(), mintApiKey()];
  expect(`{"x-api-key":"${one}"} and ${two}.`.replace(API_KEY_IN_TEXT, '[key]')).toBe(
    '{"x-api-key":"[key]"} and [key].',
  );
});

describe('isKeyHash', () => {
  const [current, previous] = [mintApiKey(), mintApiKey()];
  const stored = {
    currentHash: hashApiKey(current),
    previousHash: hashApiKey(previous),
    previousEndsAt: 1000,
  };

  test('accepts the current key at any time', () => {
    expect(isKeyHash(hashApiKey(current), stored, 0)).toBe(true);
    expect(isKeyHash(hashApiKey(current), stored, 5000)).toBe(true);
  });

  test('accepts the previous key before its end, and not from then on', () => {
    expect(isKeyHash(hashApiKey(previous), stored, 999)).toBe(true);
    expect(isKeyHash(hashApiKey(previous), stored, 1000)).toBe(false);
  });

  test('refuses any other key, and the hash taken for a key', () => {
    expect(isKeyHash(hashApiKey(mintApiKey()), stored, 0)).toBe(false);
    expect(isKeyHash(hashApiKey(stored.currentHash), stored, 0)).toBe(false);
  });

  test('refuses every key when there is nothing to compare it with', () => {
    expect(isKeyHash(hashApiKey(current), { currentHash: HASH_OF_NO_KEY }, 0)).toBe(false);
    expect(isKeyHash(hashApiKey(previous), { currentHash: hashApiKey(current) }, 0)).toBe(false);
  });
});
