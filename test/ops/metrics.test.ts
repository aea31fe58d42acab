import { expect, onTestFinished, test } from 'vitest';
import { Metrics } from '../../src/ops/metrics.ts';

test('automations beyond the first 500 are counted together', async () => {
  const metrics = new Metrics();
  onTestFinished(() => metrics.close());
  for (let number = 1; number <= 600; number++) metrics.runAccepted(`a-${number}`, 0.01);
  metrics.runAccepted('a-1', 0.01);
  const lines = (await metrics.read()).split('\n');
  expect(lines.filter((line) => line.startsWith('orc_runs_accepted_total{'))).toHaveLength(501);
  expect(lines).toContain('orc_runs_accepted_total{automation="a-1"} 2');
  expect(lines).toContain('orc_runs_accepted_total{automation="(other)"} 100');
  expect(lines).toContain('orc_accept_duration_seconds_count 601');
});
