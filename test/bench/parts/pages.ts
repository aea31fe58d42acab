import { CONNECTIONS, startInstallation } from '../http-installation.ts';
import type { HttpRequest } from '../http-load.ts';
import { startNoOp } from '../http-servers.ts';
import { type Contestant, takeTurns, toRow } from '../http-turns.ts';
import type { Part, Table } from '../part.ts';

export const pages: Part = {
  name: 'pages',
  summary: 'a public page as HTML and as Markdown, against a GET that answers the same bytes',
  async run(context) {
    const { orc, generator } = await startInstallation(context);
    const get = (accept: string): HttpRequest => ({
      ...{ url: `${orc.url}/docs`, method: 'GET' },
      headers: { accept },
    });
    const read = async ({ url, headers }: HttpRequest) => (await fetch(url, { headers })).text();
    const requests = { html: get('text/html'), markdown: get('text/markdown') };
    const texts = { html: await read(requests.html), markdown: await read(requests.markdown) };
    const noOp = await startNoOp(context, texts);

    const tables: Table[] = [];
    for (const form of ['html', 'markdown'] as const) {
      const request = requests[form];
      const contestants: Contestant[] = [
        { name: 'no-op', server: noOp, status: 200, request: { ...request, url: `${noOp.url}/${form}` } },
        { name: 'orc', server: orc, status: 200, request },
      ];
      const turns = { ...context, generator, connections: CONNECTIONS };
      const samples = await takeTurns(context, contestants, turns);
      tables.push({
        title: `GET /docs as ${request.headers['accept']}, ${Buffer.byteLength(texts[form])} B, ${CONNECTIONS} connections`,
        rows: contestants.map((each) => toRow(each, samples.get(each.name))),
        reference: 'no-op',
      });
    }
    return tables;
  },
};
