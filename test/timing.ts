import { Agent, request } from 'node:http';
import { afterAll, expect, test } from 'vitest';
import { mintApiKey } from '../src/core/api-key.ts';
import { postTrigger } from './support/http.ts';
import { startApiProcess } from './support/orc-process.ts';
import { createAutomation, openTestStore } from './support/store.ts';

/**
 * `npm run timing`: do the refusals of an unknown slug, of a wrong key and of a wrong key for a disabled automation take
 * equally long? Prints the means and Welch's t for each pair; |t| of 4.5 or more is a difference that an attacker with
 * enough patience could see. It judges nothing, since a clock is no ground for a test to fail on.
 */

const REQUESTS_EACH = Number(process.env['TIMING_REQUESTS'] ?? 30_000);
const WARM_UP = 1000;

const store = openTestStore();
const api = await startApiProcess({ ...store.env, TRUST_PROXY: '127.0.0.1' });
afterAll(async () => {
  await api.stop();
});

/** Of the same length, so that they differ in nothing but what is asked here. */
const SLUGS = {
  'unknown slug': 'timing-unknown1',
  'wrong key': 'timing-enabled1',
  disabled: 'timing-disabled',
};
type Case = keyof typeof SLUGS;
const CASES = Object.keys(SLUGS) as Case[];

const agent = new Agent({ keepAlive: true, maxSockets: 1 });
let sent = 0;

/** Microseconds until the answer is there. Every request has another address, so that none is throttled. */
function timeRefusal(slug: string, apiKey: string): Promise<{ statusCode: number; us: number }> {
  sent += 1;
  const address = `10.${(sent >> 16) & 255}.${(sent >> 8) & 255}.${sent & 255}`;
  return new Promise((resolve, reject) => {
    const headers = { 'x-api-key': apiKey, 'x-forwarded-for': address, 'content-length': 0 };
    const url = `${api.url}/orc/api/automation-triggers/${slug}`;
    const started = process.hrtime.bigint();
    const sending = request(url, { method: 'POST', agent, headers }, (response) => {
      response.resume().once('end', () => {
        const us = Number(process.hrtime.bigint() - started) / 1000;
        resolve({ statusCode: Number(response.statusCode), us });
      });
    });
    sending.once('error', reject).end();
  });
}

function shuffled<T>(values: readonly T[]): T[] {
  return values
    .map((value) => ({ value, order: Math.random() }))
    .sort((a, b) => a.order - b.order)
    .map(({ value }) => value);
}

function describeSample(values: readonly number[]) {
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  const variance = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (values.length - 1);
  const median = values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;
  return { mean, median, variance, count: values.length };
}
type Sample = ReturnType<typeof describeSample>;

function welch(a: Sample, b: Sample): number {
  return (a.mean - b.mean) / Math.sqrt(a.variance / a.count + b.variance / b.count);
}

test('prints how long each kind of refusal takes', async () => {
  // The API remembers what a right key opens, and must not take another time for the wrong keys of that automation.
  for (const slug of [SLUGS['wrong key'], SLUGS.disabled]) {
    const { status } = await postTrigger(api.url, slug, await createAutomation(store, slug));
    expect(status).toBe(202);
  }
  await store.automations.setEnabled(SLUGS.disabled, false);
  const times: Record<Case, number[]> = { 'unknown slug': [], 'wrong key': [], disabled: [] };
  const statuses = new Map<number, number>();

  for (let round = -WARM_UP; round < REQUESTS_EACH; round += 1) {
    // One key for the three, and another order in every round: what drifts, drifts for all of them.
    const apiKey = mintApiKey();
    for (const each of shuffled(CASES)) {
      const { statusCode, us } = await timeRefusal(SLUGS[each], apiKey);
      statuses.set(statusCode, (statuses.get(statusCode) ?? 0) + 1);
      if (round >= 0) times[each].push(us);
    }
  }
  agent.destroy();

  expect([...statuses.keys()]).toEqual([401]);
  const samples = CASES.map((name) => ({ name, ...describeSample(times[name]) }));
  for (const { name, count, mean, median, variance } of samples) {
    console.log(
      `${name.padEnd(14)} ${count} requests, mean ${mean.toFixed(2)} µs, median ${median.toFixed(2)} µs, standard deviation ${Math.sqrt(variance).toFixed(2)} µs`,
    );
  }
  for (const [index, a] of samples.entries()) {
    for (const b of samples.slice(index + 1)) {
      console.log(`Welch's t, ${a.name} against ${b.name}: ${welch(a, b).toFixed(2)}`);
    }
  }
});
