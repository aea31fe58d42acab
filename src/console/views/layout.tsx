import type { ComponentChildren } from 'preact';
import type { Operator } from '../../core/operator.ts';
import type { AssetHrefs } from '../asset-files.ts';

const SECTIONS = [
  ['overview', '/', 'Overview'],
  ['automations', '/automations', 'Automations'],
  ['runs', '/runs', 'Runs'],
  ['workers', '/workers', 'Workers'],
  ['audit', '/audit', 'Audit'],
] as const;

/** An entry of the navigation. */
export type Section = (typeof SECTIONS)[number][0];

interface LayoutProps {
  title: string;
  section: Section | undefined;
  /** Who sees the page; nobody before the login, who gets no navigation. */
  operator: Operator | undefined;
  assets: AssetHrefs;
  children: ComponentChildren;
}

/** What every page has around its content. */
export function Layout({ title, section, operator, assets, children }: LayoutProps) {
  return (
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <meta name="robots" content="noindex" />
        <title>{`${title} · orc`}</title>
        <link rel="icon" href={assets.icon} type="image/svg+xml" />
        <link rel="stylesheet" href={assets.stylesheet} />
        <script src={assets.script} type="module" />
      </head>
      <body>
        <a class="skip" href="#main">
          Skip to the content
        </a>
        <header class="top">
          <div class="wrap">
            <a class="brand" href="/">
              <img src={assets.icon} alt="" width="22" height="22" />
              orc
            </a>
            {operator && <Navigation section={section} operator={operator} />}
          </div>
        </header>
        <main class="wrap" id="main" tabIndex={-1}>
          {children}
        </main>
      </body>
    </html>
  );
}

function Navigation({ section, operator }: { section: Section | undefined; operator: Operator }) {
  return (
    <>
      <nav aria-label="Pages">
        {SECTIONS.map(([name, href, text]) => (
          <a key={name} href={href} aria-current={name === section ? 'page' : undefined}>
            {text}
          </a>
        ))}
      </nav>
      <form class="who" method="post" action="/logout">
        <span>
          {operator.name} ({operator.role})
        </span>
        <button class="quiet" type="submit">
          Log out
        </button>
      </form>
    </>
  );
}
