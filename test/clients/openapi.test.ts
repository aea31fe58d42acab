import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import openapiTS, { astToString } from 'openapi-typescript';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readSite, withOrigin } from '../../src/pages/site.ts';
import { untilHealthy } from '../support/http.ts';
import { type OrcProcess, startApiProcess, startWorkerProcess } from '../support/orc-process.ts';
import { codeBlock } from '../support/pages.ts';
import { createAutomation, openTestStore } from '../support/store.ts';

const run = promisify(execFile);
const modules = fileURLToPath(new URL('../../node_modules/', import.meta.url));
const program = (path: string) => join(modules, path);

const store = openTestStore();
let api: OrcProcess & { url: string };
let worker: OrcProcess;
let apiKey: string;
/** Below node_modules, so that a program in it finds its dependencies. */
let folder: string;

beforeAll(async () => {
  api = await startApiProcess(store.env);
  worker = await startWorkerProcess(store.env);
  await untilHealthy(api.url);
  apiKey = await createAutomation(store, 'hello');
  await mkdir(join(modules, '.cache'), { recursive: true });
  folder = await mkdtemp(join(modules, '.cache', 'orc-clients-'));
});

afterAll(async () => {
  await rm(folder, { recursive: true, force: true });
  await Promise.all([api.stop(), worker.stop()]);
});

async function latestRun() {
  const [latest] = await store.runs.list({ automation: 'hello', limit: 1 });
  return latest;
}

describe('a client made by openapi-typescript and openapi-fetch', () => {
  const CLIENT = `
import createClient from 'openapi-fetch';
import type { paths } from './api.js';

const client = createClient<paths>({ baseUrl: process.env['ORC_URL'] ?? '' });
const { data, error } = await client.POST('/orc/api/automation-triggers/{slug}', {
  params: { path: { slug: 'hello' }, header: { 'idempotency-key': 'typed' } },
  headers: { 'x-api-key': process.env['ORC_KEY'] ?? '' },
  body: { from: 'openapi-fetch' },
});
if (!data) throw new Error(error.hint ?? error.message);
const status: 'queued' | 'running' | 'retrying' | 'succeeded' | 'failed' | 'timed_out' | 'cancelled' = data.status;
const health = await client.GET('/orc/health');
const healthStatus: 'ok' | 'degraded' | undefined = health.data?.status;
const refused = await client.POST('/orc/api/automation-triggers/{slug}', { params: { path: { slug: 'hello' } } });
console.log(JSON.stringify({ runId: data.runId, status, healthStatus, refused: refused.error?.statusCode }));
`;
  const MISTAKES = `
import createClient from 'openapi-fetch';
import type { paths } from './api.js';

const client = createClient<paths>({ baseUrl: '' });
// @ts-expect-error: there is no such path
await client.GET('/orc/runs');
// @ts-expect-error: the slug is missing
await client.POST('/orc/api/automation-triggers/{slug}', {});
// @ts-expect-error: the body is an object
await client.POST('/orc/api/automation-triggers/{slug}', { params: { path: { slug: 'a' } }, body: [1] });
const { data } = await client.GET('/orc/health');
// @ts-expect-error: that is no status of a healthy service
export const isWrong = data?.status === 'unavailable';
`;

  test('has types for everything, refuses mistakes and starts a run', async () => {
    const types = astToString(await openapiTS(new URL('/openapi.json', api.url)));
    await Promise.all([
      writeFile(join(folder, 'package.json'), '{"type":"module"}'),
      writeFile(join(folder, 'api.ts'), types),
      writeFile(join(folder, 'client.ts'), CLIENT),
      writeFile(join(folder, 'mistakes.ts'), MISTAKES),
    ]);
    const options = [
      '--strict',
      '--target',
      'es2022',
      '--module',
      'nodenext',
      '--types',
      'node',
      '--skipLibCheck',
      '--ignoreConfig',
    ];
    const files = ['client.ts', 'mistakes.ts'];
    const compiling = run(process.execPath, [program('typescript/bin/tsc'), ...options, ...files], {
      cwd: folder,
    });
    expect(await compiling.catch(({ stdout }) => stdout)).toMatchObject({ stdout: '' });

    const env = { ORC_URL: api.url, ORC_KEY: apiKey };
    const { stdout } = await run(process.execPath, ['client.js'], { cwd: folder, env });
    const printed = JSON.parse(stdout);
    expect(printed).toEqual({
      runId: expect.any(String),
      status: 'queued',
      healthStatus: 'ok',
      refused: 401,
    });
    expect((await latestRun())?.id).toBe(printed.runId);
  });
});

describe('an MCP bridge made of the document', () => {
  /** The configuration that the recipes give, with the installed bridge instead of one from the registry. */
  function bridge() {
    const recipes = readSite().pages.find(({ path }) => path === '/docs/recipes')?.markdown ?? '';
    const text = codeBlock(withOrigin(recipes, api.url), ({ file }) => file === 'mcp.json');
    const { orc } = JSON.parse(text.replace('YOUR-KEY', apiKey)).mcpServers;
    expect([orc.command, ...orc.args]).toEqual(['npx', '-y', '@ivotoby/openapi-mcp-server']);
    const bin = program('@ivotoby/openapi-mcp-server/bin/mcp-server.js');
    return new StdioClientTransport({
      command: process.execPath,
      args: [bin],
      env: orc.env,
      stderr: 'ignore',
    });
  }

  test('lists exactly two tools, and starts a run and reads health through them', async () => {
    const client = new Client({ name: 'orc-test', version: '1.0.0' });
    await client.connect(bridge());
    try {
      const { tools } = await client.listTools();
      expect(tools.map(({ name }) => name).sort()).toEqual(['get-health', 'trigger-automation']);
      const trigger = tools.find(({ name }) => name === 'trigger-automation');
      expect(trigger?.description).toMatch(/Use it when/);
      expect(trigger?.inputSchema).toMatchObject({ required: ['slug'] });
      expect(Object.keys(trigger?.inputSchema.properties ?? {})).toEqual(
        expect.arrayContaining(['slug', 'idempotency-key']),
      );

      const call = async (name: string, args: Record<string, unknown>) => {
        const { content } = await client.callTool({ name, arguments: args });
        return JSON.parse((content as { text: string }[])[0]?.text ?? '');
      };
      const accepted = await call('trigger-automation', {
        slug: 'hello',
        'idempotency-key': 'mcp',
        from: 'mcp',
      });
      expect(accepted).toEqual({ runId: expect.any(String), status: 'queued' });
      const latest = await latestRun();
      expect(latest?.id).toBe(accepted.runId);
      expect(await call('get-health', {})).toMatchObject({ status: 'ok' });
    } finally {
      await client.close();
    }
  });
});
