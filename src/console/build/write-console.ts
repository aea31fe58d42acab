import { createHash } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { rolldown } from 'rolldown';
import { PACKAGE_ROOT } from '../../core/package-root.ts';
import { ASSETS_FILE, type Assets } from '../asset-files.ts';

/** Build step: makes the files that the console's pages load, each under a name with a hash of its content. */
const source = (path: string) => new URL(`src/${path}`, PACKAGE_ROOT);
const read = (path: string) => readFile(source(path), 'utf8');

const files: Assets['files'] = {};
const add = (name: string, extension: string, type: string, text: string): string => {
  const hash = createHash('sha256').update(text).digest('base64url').slice(0, 10);
  const path = `/assets/${name}-${hash}.${extension}`;
  files[path] = { type, text };
  return path;
};

const bundle = await rolldown({
  input: fileURLToPath(source('console/assets/console.js')),
  platform: 'browser',
});
const { output } = await bundle.generate({ format: 'esm', minify: true });
await bundle.close();

const stylesheets = [
  'pages/assets/tokens',
  'console/assets/console',
  'console/assets/pages',
  'console/assets/runs',
];
const stylesheet = (await Promise.all(stylesheets.map((name) => read(`${name}.css`)))).join('');
const hrefs = {
  stylesheet: add('console', 'css', 'text/css', stylesheet),
  script: add('console', 'js', 'text/javascript', output[0].code),
  icon: add('icon', 'svg', 'image/svg+xml', await read('pages/assets/icon.svg')),
};
await writeFile(ASSETS_FILE, JSON.stringify({ hrefs, files } satisfies Assets));
