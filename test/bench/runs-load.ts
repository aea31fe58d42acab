import { Agent, request } from 'node:http';

/**
 * Triggers an automation at a fixed rate, evenly, whatever becomes of it, in a process of its own. It sends
 * {@link LoadResult} at its end.
 */
export interface LoadSettings {
  url: string;
  headers: Record<string, string>;
  payload: string;
  perSecond: number;
  seconds: number;
}

export interface LoadResult {
  accepted: number;
  /** Answered otherwise, or not at all. */
  failed: number;
}

/** Requests that are due are sent this often, in milliseconds. */
const TICK_MS = 1;

process.once('disconnect', () => process.exit());
const { url, headers, payload, perSecond, seconds } = JSON.parse(process.argv[2] ?? '') as LoadSettings;
const agent = new Agent({ keepAlive: true });
const total = perSecond * seconds;
const result: LoadResult = { accepted: 0, failed: 0 };
let sent = 0;
const settled = (key: keyof LoadResult) => {
  result[key] += 1;
  if (result.accepted + result.failed === total) process.send?.(result);
};
const send = () => {
  const trigger = request(url, {
    method: 'POST',
    agent,
    headers: { ...headers, 'content-length': payload.length },
  });
  trigger.on('error', () => settled('failed'));
  trigger.on('response', (response) => {
    response.resume().on('end', () => settled(response.statusCode === 202 ? 'accepted' : 'failed'));
  });
  trigger.end(payload);
};
const began = performance.now();
const sending = setInterval(() => {
  const due = Math.min(((performance.now() - began) / 1000) * perSecond, total);
  for (; sent < due; sent += 1) send();
  if (sent === total) clearInterval(sending);
}, TICK_MS);
