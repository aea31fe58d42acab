import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { parse, stringify } from 'yaml';
import { ERRORS } from '../../src/core/errors.ts';
import { findDebianProgram } from '../support/debian-program.ts';
import { ROOT, readProjectFile } from '../support/repository.ts';

const promtool = await findDebianProgram({
  names: ['promtool'],
  packages: ['prometheus'],
  path: 'usr/bin/promtool',
});

const FILE = 'docs/prometheus-alerts.yaml';

interface Rule {
  alert: string;
  expr: string;
}

const rules: Rule[] = parse(readProjectFile(FILE)).groups[0].rules;

/** What orc reports, minute by minute, in the notation of Prometheus' own tests: `start+step x times`. */
type Reported = Record<string, string>;

/** One of each, where nothing is wrong. */
const WELL: Reported = {
  'orc_workers_alive{instance="api"}': '2x60',
  'orc_workers_alive{instance="worker"}': '2x60',
  'orc_oldest_queued_run_age_seconds{instance="api"}': '30x60',
  'orc_queued_runs{instance="api"}': '500x60',
  'orc_slots_held_seconds{instance="api"}': '5x60',
  'orc_requests_rejected_total{error="queue_unavailable"}': '7x60',
  'orc_requests_rejected_total{error="invalid_api_key"}': '0+50x60',
  'orc_accept_duration_seconds_bucket{le="0.1"}': '0+990x60',
  'orc_accept_duration_seconds_bucket{le="+Inf"}': '0+990x60',
  'orc_runs_ended_total{automation="deploy",status="succeeded"}': '0+9x60',
  'orc_runs_ended_total{automation="deploy",status="failed"}': '0+1x60',
  'orc_event_receivers_failing{instance="api"}': '0x10 1x8 0x40',
  'orc_events_dropped{instance="api"}': '7x60',
  'orc_event_loop_lag_seconds{instance="api"}': '0.01x60',
};

/** What is wrong, and the alert that says so after half an hour. */
const WRONG: [alert: string, reported: Reported][] = [
  ['OrcNotReporting', Object.fromEntries(Object.keys(WELL).map((series) => [series, '']))],
  [
    'OrcNoWorkerAlive',
    { 'orc_workers_alive{instance="api"}': '0x60', 'orc_workers_alive{instance="worker"}': '' },
  ],
  ['OrcSlotsHeld', { 'orc_slots_held_seconds{instance="api"}': '0+60x60' }],
  ['OrcRunsWaitTooLong', { 'orc_oldest_queued_run_age_seconds{instance="api"}': '0+60x60' }],
  ['OrcQueueUnavailable', { 'orc_requests_rejected_total{error="queue_unavailable"}': '0+3x60' }],
  ['OrcQueueFillsUp', { 'orc_queued_runs{instance="api"}': '80001x60' }],
  [
    'OrcAcceptsSlowly',
    {
      'orc_accept_duration_seconds_bucket{le="0.1"}': '0+900x60',
      'orc_accept_duration_seconds_bucket{le="2"}': '0+990x60',
    },
  ],
  ['OrcRunsFail', { 'orc_runs_ended_total{automation="deploy",status="failed"}': '0+10x60' }],
  ['OrcEventsUndelivered', { 'orc_event_receivers_failing{instance="api"}': '1x60' }],
  ['OrcEventsDropped', { 'orc_events_dropped{instance="api"}': '7x10 8x50' }],
  ['OrcEventLoopLags', { 'orc_event_loop_lag_seconds{instance="api"}': '0.9x60' }],
];

test('every alert is tried, and names an error of orc where it names one', () => {
  expect(WRONG.map(([alert]) => alert).sort()).toEqual(rules.map(({ alert }) => alert).sort());
  for (const { expr } of rules) {
    for (const [, error] of expr.matchAll(/error="(\w+)"/g)) expect(Object.keys(ERRORS)).toContain(error);
  }
});

describe.runIf(promtool)('promtool', () => {
  function run(...args: string[]): Promise<{ code: number | null; output: string }> {
    return new Promise((resolve) => {
      const { command = '', env } = promtool ?? {};
      const child = execFile(command, args, { env }, (_, stdout, stderr) =>
        resolve({ code: child.exitCode, output: stdout + stderr }),
      );
    });
  }

  /** Says which alerts fire after half an hour. */
  async function firing(reported: Reported, expected: readonly string[]): Promise<void> {
    const folder = await mkdtemp(join(tmpdir(), 'orc-alerts-'));
    onTestFinished(() => rm(folder, { recursive: true, force: true }));
    const series = Object.entries({ ...WELL, ...reported }).filter(([, values]) => values !== '');
    const file = join(folder, 'alerts.test.yaml');
    const isFiring = (alert: string) =>
      `count(ALERTS{alertname="${alert}",alertstate="firing"}) or vector(0)`;
    await writeFile(
      file,
      stringify({
        rule_files: [join(ROOT, FILE)],
        evaluation_interval: '1m',
        tests: [
          {
            interval: '1m',
            input_series: series.map(([name, values]) => ({ series: name, values })),
            promql_expr_test: rules.map(({ alert }) => ({
              expr: isFiring(alert),
              eval_time: '30m',
              exp_samples: [{ labels: '{}', value: expected.includes(alert) ? 1 : 0 }],
            })),
          },
        ],
      }),
    );
    const { code, output } = await run('test', 'rules', file);
    expect([output, code]).toEqual([expect.stringContaining('SUCCESS'), 0]);
  }

  test('finds nothing wrong with the rules', async () => {
    const { code, output } = await run('check', 'rules', '--lint=all', '--lint-fatal', join(ROOT, FILE));
    expect([output, code]).toEqual([expect.stringContaining(`${rules.length} rules found`), 0]);
  });

  test('no alert fires while nothing is wrong', () => firing({}, []));

  test.each(WRONG)('%s fires, and no other alert', (alert, reported) => firing(reported, [alert]));
});
