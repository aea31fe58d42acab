import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, test } from 'vitest';
import { ConfigSchema, SECRET_VARIABLES } from '../../src/config.ts';
import { NODE_FLAGS } from '../../src/local/child.ts';
import { linksIn } from '../support/pages.ts';
import { ROOT, readProjectFile } from '../support/repository.ts';

const FILES = [
  'README.md',
  'examples/README.md',
  ...readdirSync(`${ROOT}docs`)
    .filter((name) => name.endsWith('.md'))
    .map((name) => `docs/${name}`),
];
const deploy = readProjectFile('docs/deploy.md');

/** The anchors of a page's headings, as GitHub makes them. */
function anchorsOf(markdown: string): string[] {
  return [...markdown.matchAll(/^#+ (.*)$/gm)].map(([, heading = '']) =>
    heading
      .toLowerCase()
      .replace(/[^\w -]/g, '')
      .replaceAll(' ', '-'),
  );
}

test.each(FILES)('the links of %s lead somewhere', (file) => {
  const links = linksIn(readProjectFile(file)).filter((link) => !link.startsWith('http'));
  for (const link of links) {
    const [path = '', anchor] = link.split('#');
    const target = path === '' ? join(ROOT, file) : join(ROOT, dirname(file), path);
    expect(existsSync(target), link).toBe(true);
    if (anchor !== undefined) expect(anchorsOf(readFileSync(target, 'utf8')), link).toContain(anchor);
  }
});

test('orc starts Node with the same flags wherever it is started', () => {
  const flags = NODE_FLAGS.join(' ');
  const units = ['api', 'worker', 'agent-worker', 'console'].map((name) => [
    `docs/systemd/orc-${name}.service`,
    `/usr/local/lib/orc/node ${flags} `,
  ]);
  const entrypoint = [
    'Dockerfile',
    `"/usr/local/lib/orc/node", ${NODE_FLAGS.map((flag) => `"${flag}"`).join(', ')}, "dist/orc.js"`,
  ];
  for (const [file = '', started] of [...units, entrypoint]) expect(readProjectFile(file)).toContain(started);
  expect(deploy).toContain(`\`${flags}\``);
});

test('docs/deploy.md says what the sources say', () => {
  const quoted = (file: string, pattern: RegExp) =>
    pattern.exec(readProjectFile(file))?.[1]?.replaceAll('_', '');
  const seconds = (file: string, name: string) =>
    Number(quoted(file, new RegExp(`${name} = ([\\d_]+);`))) / 1000;
  expect(deploy).toContain(`less than ${seconds('src/api/app.ts', 'KEEP_ALIVE_TIMEOUT_MS')} s`);
  expect(deploy).toContain(`answers 408 after ${seconds('src/api/app.ts', 'REQUEST_TIMEOUT_MS')} s`);
  expect(deploy).toContain(`returns it for ${seconds('src/worker/consumer.ts', 'NEWER_FORMAT_PAUSE_MS')} s`);
  expect(deploy).toContain(`${seconds('src/cli/closing.ts', 'LAST_RESORT_MS')} s later`);
  const logged = quoted('src/worker/consumer.ts', /Error\('(Runs wait for a worker of a newer version) /);
  expect(deploy).toContain(`\`${logged}\``);
  const variables = deploy.matchAll(/`([A-Z]+_[A-Z_]+)(=[^`]*)?`/g);
  const others = SECRET_VARIABLES.map((name) => `${name}_FILE`);
  for (const [, name] of variables)
    expect([...Object.keys(ConfigSchema.properties), ...others]).toContain(name);
});
