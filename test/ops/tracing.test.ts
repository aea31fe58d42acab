import { once } from 'node:events';
import { createServer } from 'node:http';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { mintApiKey } from '../../src/core/api-key.ts';
import { type OrcProcess, startApiProcess, startWorkerProcess } from '../support/orc-process.ts';
import { createAutomation, openTestStore, script } from '../support/store.ts';
import { answerStatus, type Received, startReceiver } from '../worker/receiver.ts';
import { readLog } from '../worker/workbench.ts';

const TRACE_ID = '0af7651916cd43dd8448eb211c80319c';
const PARENT_ID = 'b7ad6b7169203331';
const TRACEPARENT = `00-${TRACE_ID}-${PARENT_ID}-01`;

interface Attribute {
  key: string;
  value: Record<string, unknown>;
}

interface Span {
  service: string;
  traceId: string;
  spanId: string;
  parentSpanId?: string;
  name: string;
  kind: number;
  attributes: Attribute[];
}

/** As OTLP's JSON encoding has it (opentelemetry.io, "OTLP/HTTP"). */
interface ExportRequest {
  resourceSpans: {
    resource: { attributes: Attribute[] };
    scopeSpans: { spans: Omit<Span, 'service'>[] }[];
  }[];
}

const spans: Span[] = [];
const collector = createServer((request, response) => {
  let body = '';
  request.setEncoding('utf8').on('data', (chunk) => {
    body += chunk;
  });
  request.on('end', () => {
    expect([request.url, request.headers['content-type']]).toEqual(['/v1/traces', 'application/json']);
    for (const { resource, scopeSpans } of (JSON.parse(body) as ExportRequest).resourceSpans) {
      const name = resource.attributes.find(({ key }) => key === 'service.name');
      const service = String(name?.value['stringValue']);
      for (const { spans: some } of scopeSpans) spans.push(...some.map((span) => ({ ...span, service })));
    }
    response.setHeader('content-type', 'application/json').end('{}');
  });
});

const store = openTestStore();
let api: OrcProcess & { url: string };
let worker: OrcProcess;

beforeAll(async () => {
  await once(collector.listen(0, '127.0.0.1'), 'listening');
  const { port } = collector.address() as { port: number };
  const env = {
    ...store.env,
    OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${port}`,
    OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json',
    OTEL_BSP_SCHEDULE_DELAY: '100',
  };
  api = await startApiProcess(env);
  worker = await startWorkerProcess(env);
});

afterAll(async () => {
  await api.stop();
  await worker.stop();
  collector.close();
  expect([...api.lines, ...worker.lines].filter((line) => line.includes('traces cannot'))).toEqual([]);
});

async function send(slug: string, key: string, headers: Record<string, string> = {}): Promise<string> {
  const response = await fetch(`${api.url}/orc/api/automation-triggers/${slug}`, {
    method: 'POST',
    headers: { 'x-api-key': key, 'content-type': 'application/json', ...headers },
    body: '{"some":"payload"}',
  });
  return String(((await response.json()) as { runId?: string }).runId);
}

/** The spans of a trace, once there are so many. */
async function trace(traceId: string, count: number): Promise<Span[]> {
  const found = () => spans.filter((span) => span.traceId === traceId);
  await expect.poll(() => found().length, { timeout: 20_000 }).toBe(count);
  return found();
}

test('the trace of a caller goes on in the API, the worker and the command', async () => {
  const key = await createAutomation(store, 'traced', {
    action: script('console.log(process.env.TRACEPARENT, process.env.TRACESTATE)'),
  });
  const runId = await send('traced', key, { traceparent: TRACEPARENT, tracestate: 'rojo=1,congo=2' });
  const [first, second] = await trace(TRACE_ID, 2);
  const [request, attempt] = first?.service === 'orc-api' ? [first, second] : [second, first];
  expect(request).toMatchObject({ service: 'orc-api', parentSpanId: PARENT_ID, kind: 2 });
  expect(attempt).toMatchObject({
    service: 'orc-worker',
    name: 'process runs',
    parentSpanId: request?.spanId,
    kind: 5,
    attributes: expect.arrayContaining([{ key: 'bullmq.job.id', value: { stringValue: runId } }]),
  });
  const { stdout } = await readLog(store, runId);
  expect(stdout.toString()).toBe(`00-${TRACE_ID}-${attempt?.spanId}-01 rojo=1,congo=2\n`);
});

test('a URL gets the trace, too, and a request without one begins one', async () => {
  const receiver = await startReceiver(answerStatus(204));
  const key = await createAutomation(store, 'delivered', { action: { type: 'http', url: receiver.url } });
  const runId = await send('delivered', key);
  await worker.record(({ msg, runId: id }) => msg === 'run ended' && id === runId);
  const [{ headers }] = receiver.requests as [Received];
  const [, traceId = '', spanId] = String(headers['traceparent']).split('-');
  const found = await trace(traceId, 2);
  expect(found.find(({ service }) => service === 'orc-worker')?.spanId).toBe(spanId);
});

test('spans hold neither keys nor payloads, and there are none of the search for work', async () => {
  const key = await createAutomation(store, 'private');
  const misplaced = mintApiKey();
  await send(`private?x-api-key=${misplaced}`, key, { traceparent: `00-${'1'.repeat(32)}-${PARENT_ID}-01` });
  await send(misplaced, misplaced, { traceparent: `00-${'2'.repeat(32)}-${PARENT_ID}-01` });
  await trace('1'.repeat(32), 2);
  await trace('2'.repeat(32), 1);
  const all = JSON.stringify(spans);
  for (const secret of [key, misplaced, 'payload']) expect(all).not.toContain(secret);
  const names = new Set(spans.filter(({ service }) => service === 'orc-worker').map(({ name }) => name));
  expect([...names]).toEqual(['process runs']);
});
