import { hash, randomBytes, timingSafeEqual } from 'node:crypto';
import { crc32 } from 'node:zlib';

const PREFIX = 'orc_';
const SECRET_BYTES = 32;
/** 62^43 > 2^256, so 43 characters hold every 256-bit secret. */
const SECRET_LENGTH = 43;
/** 62^6 > 2^32, so 6 characters hold every CRC-32. */
const CHECKSUM_LENGTH = 6;
const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const KEY_LENGTH = PREFIX.length + SECRET_LENGTH + CHECKSUM_LENGTH;
export const API_KEY_PATTERN = `^${PREFIX}[0-9A-Za-z]{${SECRET_LENGTH + CHECKSUM_LENGTH}}$`;
const keyExpression = new RegExp(API_KEY_PATTERN);

/** Finds API keys inside other text, for redaction. */
export const API_KEY_IN_TEXT = new RegExp(`${PREFIX}[0-9A-Za-z]{${SECRET_LENGTH + CHECKSUM_LENGTH}}`, 'g');

/** Makes a new API key: `orc_`, 256 random bits in base62, and a CRC-32 that tells keys from typos and other texts. */
export function mintApiKey(): string {
  let secret = '';
  let rest = BigInt(`0x${randomBytes(SECRET_BYTES).toString('hex')}`);
  for (; secret.length < SECRET_LENGTH; rest /= 62n) secret = ALPHABET[Number(rest % 62n)] + secret;
  return PREFIX + secret + checksum(secret);
}

/** Whether a string has the form and the checksum of an API key; the key need not have been issued. */
export function isWellFormedApiKey(value: string): boolean {
  if (value.length !== KEY_LENGTH || !keyExpression.test(value)) return false;
  const secret = value.slice(PREFIX.length, PREFIX.length + SECRET_LENGTH);
  return value.endsWith(checksum(secret));
}

/**
 * The only form in which a key is stored: SHA-256, hexadecimal. A key has 256 random bits, so a slow password hash would
 * add cost and no safety.
 */
export function hashApiKey(key: string): string {
  return hash('sha256', key);
}

/** Whether a presented key is the one with this hash; compared in constant time. */
export function isKeyWithHash(key: string, keyHash: string): boolean {
  return equalsInConstantTime(hashApiKey(key), keyHash);
}

export interface StoredKeys {
  currentHash: string;
  previousHash?: string;
  /** Milliseconds since the epoch. */
  previousEndsAt?: number;
}

/** Stands for a missing key, so that an unknown slug takes the same work as a wrong key. */
export const HASH_OF_NO_KEY = '0'.repeat(64);

/**
 * Whether this is the hash of the current key, or of the previous key before its end. Always makes both comparisons, in
 * constant time.
 *
 * @param now milliseconds since the epoch
 */
export function isKeyHash(keyHash: string, stored: StoredKeys, now: number): boolean {
  const { currentHash, previousHash = HASH_OF_NO_KEY, previousEndsAt = 0 } = stored;
  const isCurrent = equalsInConstantTime(keyHash, currentHash);
  const isPrevious = equalsInConstantTime(keyHash, previousHash);
  return isCurrent || (isPrevious && now < previousEndsAt);
}

function equalsInConstantTime(left: string, right: string): boolean {
  return left.length === right.length && timingSafeEqual(Buffer.from(left), Buffer.from(right));
}

function checksum(secret: string): string {
  let digits = '';
  for (let rest = crc32(secret); digits.length < CHECKSUM_LENGTH; rest = Math.floor(rest / 62)) {
    digits = ALPHABET[rest % 62] + digits;
  }
  return digits;
}
