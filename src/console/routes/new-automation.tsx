import type { FastifyInstance } from 'fastify';
import { isSlug } from '../../core/automation.ts';
import { definitionOf, WHAT_A_SLUG_IS } from '../../core/automation-entry.ts';
import { type FormValues, NEW_AUTOMATION, readForm } from '../automation-form.ts';
import type { PageDependencies } from '../dependencies.ts';
import { formOf } from '../plugins/forms.ts';
import { render } from '../render.tsx';
import { AutomationForm } from '../views/automation-form.tsx';
import { Secrets } from '../views/secrets.tsx';

const PAGE = { title: 'New automation', section: 'automations' } as const;

export async function newAutomationRoutes(app: FastifyInstance, { settings, readings }: PageDependencies) {
  const form = (values: FormValues, problems: ReadonlyMap<string, string>) => (
    <AutomationForm action="/new-automation" values={values} problems={problems} />
  );

  app.get('/new-automation', { onRequest: app.requireAdmin }, async (_request, reply) =>
    render(reply, PAGE, form(NEW_AUTOMATION, new Map())),
  );

  // The answer has the key: no address leads to it, and nothing but Redis' hash of it stays.
  app.post('/new-automation', async (request, reply) => {
    const { values, entry, problems } = readForm(formOf(request));
    const slug = (values.get('slug') ?? '').trim();
    if (!isSlug(slug)) problems.set('slug', `'${slug.slice(0, 100)}' is not a slug. ${WHAT_A_SLUG_IS}`);
    if (problems.size > 0) return render(reply, { ...PAGE, statusCode: 422 }, form(values, problems));
    const created = await request.store.automations.create(definitionOf(slug, entry));
    if (created.status === 'exists') {
      problems.set(
        'slug',
        `The automation ${slug} already exists and was not changed. Choose another slug, or edit that one.`,
      );
      return render(reply, { ...PAGE, statusCode: 409 }, form(values, problems));
    }
    readings.survey.forget();
    const { apiKey, signingSecret, automation } = created;
    return render(
      reply,
      { ...PAGE, statusCode: 201 },
      <Secrets
        slug={slug}
        title={automation.enabled ? `${slug} is ready` : `${slug} is created, disabled`}
        apiKey={apiKey}
        signingSecret={signingSecret}
        apiUrl={settings.apiUrl}
      />,
    );
  });
}
