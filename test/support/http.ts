import { vi } from 'vitest';

/** A trigger request over a real socket. */
export async function postTrigger(
  origin: string,
  slug: string,
  apiKey: string,
  payload: string | Buffer = '{}',
  { signal = null, headers = {} }: { signal?: AbortSignal | null; headers?: Record<string, string> } = {},
): Promise<{ status: number; headers: Headers; body: Record<string, unknown> }> {
  const response = await fetch(`${origin}/orc/api/automation-triggers/${slug}`, {
    method: 'POST',
    headers: { 'x-api-key': apiKey, 'content-type': 'application/json', ...headers },
    body: typeof payload === 'string' ? payload : new Uint8Array(payload),
    signal,
  });
  const body = (await response.json()) as Record<string, unknown>;
  return { status: response.status, headers: response.headers, body };
}

export async function getHealth(origin: string): Promise<{ status: number; body: Record<string, unknown> }> {
  const response = await fetch(`${origin}/orc/health`);
  return { status: response.status, body: (await response.json()) as Record<string, unknown> };
}

/** Waits until the service has seen its worker. */
export async function untilHealthy(origin: string): Promise<void> {
  const check = async () => {
    const { body } = await getHealth(origin);
    if (body['status'] !== 'ok') throw new Error(`the service is ${body['status']}`);
  };
  // Works in hooks, too, where nothing can be expected.
  await vi.waitFor(check, { timeout: 20_000, interval: 50 });
}
