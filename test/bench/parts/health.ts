import { CONNECTIONS, startInstallation } from '../http-installation.ts';
import { startNoOp } from '../http-servers.ts';
import { type Contestant, takeTurns, toRow } from '../http-turns.ts';
import type { Part } from '../part.ts';

export const health: Part = {
  name: 'health',
  summary: 'health checks, against a GET that answers the same bytes',
  async run(context) {
    const { orc, generator } = await startInstallation(context);
    const url = `${orc.url}/orc/health`;
    const report = await (await fetch(url)).text();
    const noOp = await startNoOp(context, report);
    const get = { method: 'GET', headers: {} } as const;
    const contestants: Contestant[] = [
      { name: 'no-op', server: noOp, status: 200, request: { ...get, url: `${noOp.url}/health` } },
      { name: 'orc', server: orc, status: 200, request: { ...get, url } },
    ];
    const samples = await takeTurns(context, contestants, {
      ...context,
      generator,
      connections: CONNECTIONS,
    });
    return [
      {
        title: `GET /orc/health, ${CONNECTIONS} connections`,
        rows: contestants.map((each) => toRow(each, samples.get(each.name))),
        reference: 'no-op',
        remarks: [`both answer ${Buffer.byteLength(report)} B; the no-op route serialises nothing`],
      },
    ];
  },
};
