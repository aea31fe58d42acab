import type { FastifyInstance } from 'fastify';
import type { SurveyedAutomation } from '../../store/automation-survey.ts';
import type { PageDependencies } from '../dependencies.ts';
import { render } from '../render.tsx';
import { Overview, PERIODS } from '../views/overview.tsx';

/** Automations named as those that fail most. */
const MAX_FAILING = 5;

/** Runs shown as the latest. */
const LATEST_RUNS = 8;

export async function overviewRoutes(app: FastifyInstance, { store, readings }: PageDependencies) {
  app.get<{ Querystring: { period?: string } }>('/', async ({ query }, reply) => {
    const period = query.period === '24h' ? '24h' : '1h';
    const { spans, minutes } = PERIODS[period];
    const [automations, counts, depth, executing, workers, findings, survey, latest] = await Promise.all([
      store.automations.count(),
      store.counts.latest(spans, minutes),
      readings.depth.get(),
      store.runs.executing(0),
      store.workers.alive(),
      readings.findings.get(),
      readings.survey.get(),
      store.runs.list({ limit: LATEST_RUNS }),
    ]);
    return render(
      reply,
      { title: 'Overview', section: 'overview' },
      <Overview
        period={period}
        counts={counts}
        depth={depth.value}
        running={executing.count}
        workers={workers}
        findings={{ found: findings.value, readAt: findings.readAt }}
        failing={mostFailing(survey.value)}
        automations={automations}
        latest={latest}
      />,
    );
  });
}

function mostFailing(automations: readonly SurveyedAutomation[]): SurveyedAutomation[] {
  return automations
    .filter(({ failed }) => failed > 0)
    .sort((a, b) => b.failed - a.failed || (a.slug < b.slug ? -1 : 1))
    .slice(0, MAX_FAILING);
}
