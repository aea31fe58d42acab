import { createHmac, timingSafeEqual } from 'node:crypto';

/** Throws unless the request is from orc. The body is the text as it was received, before it is parsed. */
export function verify(body, headers, secret, now = Date.now()) {
  const id = headers['webhook-id'] ?? '';
  const timestamp = headers['webhook-timestamp'] ?? '';
  if (!(Math.abs(now / 1000 - Number(timestamp)) < 300)) throw new Error('too old or too new');
  const key = Buffer.from(secret.replace('whsec_', ''), 'base64');
  const expected = createHmac('sha256', key).update(`${id}.${timestamp}.${body}`).digest();
  const signatures = (headers['webhook-signature'] ?? '').split(' ').filter((each) => each.startsWith('v1,'));
  const isRight = signatures.some((signature) => {
    const given = Buffer.from(signature.slice(3), 'base64');
    return given.length === expected.length && timingSafeEqual(given, expected);
  });
  if (!isRight) throw new Error('wrong signature');
  return JSON.parse(body);
}
