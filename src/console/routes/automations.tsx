import { Readable } from 'node:stream';
import type { FastifyInstance } from 'fastify';
import type { SurveyedAutomation } from '../../store/automation-survey.ts';
import { automationFileText } from '../automation-file.ts';
import type { PageDependencies } from '../dependencies.ts';
import { render } from '../render.tsx';
import { sendFile } from '../send-file.ts';
import {
  type AutomationRow,
  Automations,
  FILTERS,
  type FilterName,
  STRIP_LENGTH,
} from '../views/automations.tsx';

/** Automations on one page. */
const PAGE = 50;

/** Executing runs that are looked at for whose they are. */
const MAX_RUNNING = 2000;

interface Query {
  filter?: string;
  search?: string;
  after?: string;
}

export async function automationsRoutes(app: FastifyInstance, { store, readings }: PageDependencies) {
  app.get<{ Querystring: Query }>('/automations', async ({ query, operator }, reply) => {
    const filter = FILTERS.find((name) => name === query.filter) ?? 'all';
    const search = String(query.search ?? '')
      .trim()
      .toLowerCase();
    const after = String(query.after ?? '');
    const [count, survey] = await Promise.all([store.automations.count(), readings.survey.get()]);
    const surveyed = survey.value.filter(({ state }) => state !== 'deleted');
    const slugs = await slugsOf(filter, search, after, surveyed);
    const shown = slugs.slice(0, PAGE);
    return render(
      reply,
      { title: 'Automations', section: 'automations' },
      <Automations
        rows={await rowsOf(shown)}
        filter={filter}
        search={search}
        counts={{ ...countsOf(surveyed), all: count }}
        next={slugs.length > PAGE ? shown.at(-1) : undefined}
        isFirst={after === ''}
        isAdmin={operator?.role === 'admin'}
      />,
    );
  });

  app.get('/automations.yaml', { onRequest: app.requireAdmin }, async (_request, reply) =>
    sendFile(reply, 'automations.yaml', Readable.from(automationFileText(store))),
  );

  /** One more than a page has, if there are so many. */
  async function slugsOf(
    filter: FilterName,
    search: string,
    after: string,
    surveyed: readonly SurveyedAutomation[],
  ) {
    if (!/^[a-z0-9-]*$/.test(search)) return [];
    if (filter === 'all') return store.automations.slugsFrom(search, after, PAGE + 1);
    return surveyed
      .filter((each) => isIn(filter, each) && each.slug.startsWith(search) && each.slug > after)
      .slice(0, PAGE + 1)
      .map(({ slug }) => slug);
  }

  async function rowsOf(slugs: readonly string[]): Promise<AutomationRow[]> {
    if (slugs.length === 0) return [];
    const since = new Date(Date.now() - 3_600_000);
    const [automations, recent, failed, open, executing] = await Promise.all([
      Promise.all(slugs.map((slug) => store.automations.get(slug))),
      store.recent.read(slugs, STRIP_LENGTH),
      store.index.countFailed(slugs, since),
      store.index.countOpen(slugs),
      store.runs.executing(MAX_RUNNING),
    ]);
    return automations.flatMap((automation, index) => {
      if (!automation) return [];
      const { signingSecret: _, ...shown } = automation;
      return {
        automation: shown,
        recent: recent[index] ?? [],
        failed: failed[index] ?? 0,
        open: open[index] ?? 0,
        running: executing.runs.filter((run) => run.automation === shown.slug).length,
      };
    });
  }
}

function countsOf(automations: readonly SurveyedAutomation[]): Record<FilterName, number> {
  const count = (filter: FilterName) => automations.filter((each) => isIn(filter, each)).length;
  return {
    all: automations.length,
    failing: count('failing'),
    disabled: count('disabled'),
    paused: count('paused'),
  };
}

function isIn(filter: FilterName, { state, failed }: SurveyedAutomation): boolean {
  if (filter === 'failing') return failed > 0;
  return filter === 'all' || state === filter;
}
