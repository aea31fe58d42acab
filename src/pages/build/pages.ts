import { readFile } from 'node:fs/promises';
import { PACKAGE_ROOT } from '../../core/package-root.ts';
import { errorsMarkdown } from '../errors.ts';
import type { Page } from '../page.ts';

/** Folder of the pages' sources. */
export const SOURCE = new URL('src/pages/', PACKAGE_ROOT);

/** The public pages, in reading order. */
export async function readPages(): Promise<Page[]> {
  const read = (name: string) => readFile(new URL(name, SOURCE), 'utf8');
  const pages = [
    {
      path: '/',
      title: 'orc: start automations over HTTP',
      description: 'What orc is, and the one request that starts a run.',
      markdown: await read('home.md'),
    },
    {
      path: '/docs',
      title: 'orc documentation',
      description:
        'Authentication, triggering, safe retries, waiting for a run, payload, limits, health, errors, versioning.',
      markdown: await read('docs.md'),
    },
    {
      path: '/docs/errors',
      title: 'orc errors',
      description: 'Every error identifier with its cause, its cure and an example.',
      markdown: errorsMarkdown(),
    },
    {
      path: '/docs/recipes',
      title: 'orc recipes',
      description:
        'Ready-made requests for curl, shell, GitHub Actions, GitLab CI, Jenkins, Python, TypeScript, uptime monitors and AI agents.',
      markdown: await read('recipes.md'),
    },
    {
      path: '/docs/events',
      title: 'orc events',
      description:
        'What is sent when a run has ended, how to verify its signature, and how to pass it on to Slack and GitHub.',
      markdown: await read('events.md'),
    },
    {
      path: '/docs/operate',
      title: 'orc for operators',
      description:
        'Where an operator begins: the command line, the automations screen, what callers ask for, what to do when something fails.',
      markdown: await read('operate.md'),
    },
  ];
  return pages.map((page) => ({ ...page, twin: page.path === '/' ? '/index.md' : `${page.path}.md` }));
}
