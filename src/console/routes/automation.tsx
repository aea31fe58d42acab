import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { type Automation, MAX_GRACE_MS } from '../../core/automation.ts';
import { definitionOf } from '../../core/automation-entry.ts';
import { parseDuration } from '../../core/durations.ts';
import { InputError } from '../../core/input-error.ts';
import { automationFacts } from '../../ops/automation-facts.ts';
import { type FormValues, readForm, valuesOf } from '../automation-form.ts';
import { ConsoleError, notFound } from '../console-error.ts';
import type { PageDependencies } from '../dependencies.ts';
import { formOf } from '../plugins/forms.ts';
import { render } from '../render.tsx';
import { startRun } from '../start-run.ts';
import { type AutomationProps, AutomationView, AutomationYaml, LONG_STRIP } from '../views/automation.tsx';
import { AutomationForm } from '../views/automation-form.tsx';
import { Secrets } from '../views/secrets.tsx';

/** What "failing" means, in milliseconds. */
const LATELY_MS = 3_600_000;

type SlugRequest = FastifyRequest<{ Params: { slug: string } }>;

/** One automation: its page, and everything that admins do with it. */
export async function automationRoutes(
  app: FastifyInstance,
  { store, settings, readings }: PageDependencies,
) {
  app.get('/automations/:slug', async (request: SlugRequest, reply) => showAutomation(request, reply));

  app.get('/automations/:slug/yaml', { onRequest: app.requireAdmin }, async (request: SlugRequest, reply) => {
    const automation = await getAutomation(request);
    const { slug } = automation;
    // The library is loaded for those who ask for it.
    const { writeAutomationFile } = await import('../../ops/automation-yaml.ts');
    return render(reply, page(slug), <AutomationYaml slug={slug} yaml={writeAutomationFile([automation])} />);
  });

  app.get('/automations/:slug/edit', { onRequest: app.requireAdmin }, async (request: SlugRequest, reply) => {
    const automation = await getAutomation(request);
    return showForm(reply, automation, { values: valuesOf(automation), problems: new Map() });
  });

  app.post('/automations/:slug/edit', async (request: SlugRequest, reply) => {
    const seen = await getAutomation(request);
    const { slug } = seen;
    const form = formOf(request);
    const { values, entry, problems } = readForm(form, seen);
    if (problems.size > 0) return showForm(reply, seen, { values, problems });
    const changedMeanwhile = `Somebody else changed ${slug} in the meantime. What you typed is still here: save it again to replace their change.`;
    if (form.get('seen') !== seenOf(seen)) {
      return showForm(reply, seen, { values, problems, problem: changedMeanwhile });
    }
    const replaced = await request.store.automations.replace(seen, definitionOf(slug, entry));
    if (replaced.status === 'conflict') {
      return showForm(reply, await getAutomation(request), { values, problems, problem: changedMeanwhile });
    }
    readings.survey.forget();
    if (replaced.signingSecret === undefined) return reply.redirect(`/automations/${slug}`, 303);
    return render(
      reply,
      page(slug),
      <Secrets
        slug={slug}
        title={`${slug} is changed`}
        signingSecret={replaced.signingSecret}
        apiUrl={settings.apiUrl}
      />,
    );
  });

  app.post('/automations/:slug/run', async (request: SlugRequest, reply) => {
    const { slug } = await getAutomation(request);
    const text = formOf(request).get('payload') ?? '';
    const operator = request.operator?.name ?? '';
    const started = await startRun(request.store, slug, { text, operator }, settings);
    if ('runId' in started) return reply.redirect(`/runs/${started.runId}`, 303);
    return showAutomation(request, reply, { form: 'run', problem: started.problem, text });
  });

  for (const [verb, enabled] of [
    ['enable', true],
    ['disable', false],
  ] as const) {
    app.post(`/automations/:slug/${verb}`, async (request: SlugRequest, reply) => {
      const { slug } = await getAutomation(request);
      await request.store.automations.setEnabled(slug, enabled);
      readings.survey.forget();
      return reply.redirect(`/automations/${slug}`, 303);
    });
  }

  for (const [verb, paused] of [
    ['pause', true],
    ['resume', false],
  ] as const) {
    app.post(`/automations/:slug/${verb}`, async (request: SlugRequest, reply) => {
      const { slug } = await getAutomation(request);
      const automationId = await request.store.automations.setPaused(slug, paused);
      if (automationId !== undefined && !paused) await store.lanes.release({ automationId, slug });
      readings.survey.forget();
      return reply.redirect(`/automations/${slug}`, 303);
    });
  }

  app.post('/automations/:slug/rotate-key', async (request: SlugRequest, reply) => {
    const { slug } = await unchanged(request);
    const grace = readGrace(request);
    if ('problem' in grace) return showAutomation(request, reply, { form: 'rotate-key', ...grace });
    const rotated = await request.store.automations.rotateKey(slug, grace.ms);
    if (rotated.status === 'not_found') throw noSuchAutomation();
    const { apiKey, previousKeyEndsAt } = rotated;
    const note =
      grace.ms === 0
        ? 'The old key is no longer valid.'
        : `The old key stays valid until ${previousKeyEndsAt.toISOString()}.`;
    return render(
      reply,
      page(slug),
      <Secrets
        slug={slug}
        title={`${slug} has a new key`}
        apiKey={apiKey}
        note={note}
        apiUrl={settings.apiUrl}
      />,
    );
  });

  app.post('/automations/:slug/rotate-secret', async (request: SlugRequest, reply) => {
    const { slug } = await unchanged(request);
    const grace = readGrace(request);
    if ('problem' in grace) return showAutomation(request, reply, { form: 'rotate-secret', ...grace });
    const rotated = await request.store.automations.rotateSecret(slug, grace.ms);
    if (rotated.status === 'not_found') throw noSuchAutomation();
    if (rotated.status === 'unsigned') {
      throw new ConsoleError(
        409,
        'It has no signing secret',
        `The automation ${slug} sends nothing that is signed.`,
      );
    }
    const { signingSecret, previousSecretEndsAt } = rotated;
    const note =
      grace.ms === 0
        ? 'Nothing is signed with the old secret any more.'
        : `Until ${previousSecretEndsAt.toISOString()}, what is sent is signed with the old secret, too.`;
    return render(
      reply,
      page(slug),
      <Secrets
        slug={slug}
        title={`${slug} has a new signing secret`}
        signingSecret={signingSecret}
        note={note}
        apiUrl={settings.apiUrl}
      />,
    );
  });

  app.post('/automations/:slug/delete', async (request: SlugRequest, reply) => {
    const { slug } = await getAutomation(request);
    const typed = (formOf(request).get('slug') ?? '').trim();
    if (typed !== slug) {
      const problem = `Nothing was deleted: what you typed is not ${slug}.`;
      return showAutomation(request, reply, { form: 'delete', problem, text: typed });
    }
    await request.store.automations.delete(slug);
    readings.survey.forget();
    return reply.redirect('/automations', 303);
  });

  /** @throws ConsoleError */
  async function getAutomation({ params }: SlugRequest): Promise<Automation> {
    const found = await store.automations.get(params.slug);
    if (!found) throw noSuchAutomation();
    const { signingSecret: _, ...automation } = found;
    return automation;
  }

  /**
   * The automation as the page that was sent has shown it: a key that is issued twice ends the one that callers have.
   *
   * @throws ConsoleError
   */
  async function unchanged(request: SlugRequest): Promise<Automation> {
    const automation = await getAutomation(request);
    if (formOf(request).get('seen') === seenOf(automation)) return automation;
    const { slug } = automation;
    throw new ConsoleError(
      409,
      'Nothing new was issued',
      `Somebody has changed ${slug} since the page was loaded, or this was sent before and has been done.`,
      {
        cure: {
          text: `Open the page of ${slug} again. A key that nobody has saved is replaced by another one.`,
        },
      },
    );
  }

  async function showAutomation(request: SlugRequest, reply: FastifyReply, sent?: AutomationProps['sent']) {
    const automation = await getAutomation(request);
    const { slug } = automation;
    const [lastSuccess, rejections, [recent = []], [failed = 0], [open = 0]] = await Promise.all([
      store.index.lastSuccess(slug),
      store.rejections.read(slug),
      store.recent.read([slug], LONG_STRIP),
      store.index.countFailed([slug], new Date(Date.now() - LATELY_MS)),
      store.index.countOpen([slug]),
    ]);
    return render(
      reply,
      { ...page(slug), statusCode: sent ? 422 : 200 },
      <AutomationView
        automation={automation}
        seen={seenOf(automation)}
        facts={automationFacts(automation, lastSuccess, rejections)}
        recent={recent}
        failed={failed}
        open={open}
        isAdmin={request.operator?.role === 'admin'}
        sent={sent}
      />,
    );
  }
}

interface ShownForm {
  values: FormValues;
  problems: ReadonlyMap<string, string>;
  problem?: string;
}

function showForm(reply: FastifyReply, automation: Automation, { values, problems, problem }: ShownForm) {
  const { slug } = automation;
  const isRefused = problem !== undefined || problems.size > 0;
  return render(
    reply,
    { ...page(`Edit ${slug}`), statusCode: isRefused ? 422 : 200 },
    <AutomationForm
      action={`/automations/${slug}/edit`}
      values={values}
      problems={problems}
      problem={problem}
      slug={slug}
      seen={seenOf(automation)}
    />,
  );
}

/** Another one under the same slug, or a change by somebody else, is seen by it. */
function seenOf({ id, updatedAt }: Automation): string {
  return `${id} ${updatedAt.getTime()}`;
}

function page(title: string) {
  return { title, section: 'automations' } as const;
}

function noSuchAutomation(): ConsoleError {
  return notFound('automation', 'It does not exist, or was deleted. “Automations” has all of them.');
}

function readGrace(request: FastifyRequest): { ms: number } | { problem: string; text: string } {
  const text = (formOf(request).get('grace') ?? '').trim();
  try {
    const ms = parseDuration(text);
    if (ms <= MAX_GRACE_MS) return { ms };
    return { text, problem: 'It must be at most 365d.' };
  } catch (error) {
    if (error instanceof InputError) return { text, problem: error.message };
    throw error;
  }
}
