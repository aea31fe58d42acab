import type { HttpRequest } from './http-load.ts';
import type { Server } from './http-servers.ts';

/** A trigger as `orc` takes it. */
export function orcTrigger({ url }: Server, slug: string, apiKey: string, bytes: number): HttpRequest {
  return trigger(`${url}/orc/api/automation-triggers/${slug}`, apiKey, bytes);
}

/** The same request, header by header, for another server. */
export function trigger(url: string, apiKey: string, bytes: number): HttpRequest {
  return {
    url,
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-api-key': apiKey },
    body: payload(bytes),
  };
}

/** A JSON object of exactly so many bytes: a list of small objects, as payloads are, and not one long text. */
function payload(bytes: number): string {
  const wrap = (commits: unknown[], filler: string) => JSON.stringify({ ref: 'main', commits, filler });
  const commits: unknown[] = [];
  const commit = (id: number) => ({
    id,
    author: `person-${id}`,
    files: ['README.md', 'src/index.ts'],
    ok: true,
  });
  let size = wrap([], '').length;
  for (let id = 0; size + JSON.stringify(commit(id)).length + 1 <= bytes; id += 1) {
    commits.push(commit(id));
    size += JSON.stringify(commit(id)).length + 1;
  }
  return wrap(commits, 'x'.repeat(Math.max(bytes - wrap(commits, '').length, 0)));
}
