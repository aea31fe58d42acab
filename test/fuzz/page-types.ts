import { readSite } from '../../src/pages/site.ts';

const { pages, texts, assets } = readSite();

const types: [path: string, ...mediaTypes: string[]][] = [
  ...pages.flatMap(({ path, twin }): typeof types => [
    [path, 'text/html', 'text/markdown'],
    [twin, 'text/markdown'],
  ]),
  ...Object.keys(texts).map((path): [string, string] => [path, 'text/plain']),
  ...Object.entries(assets).map(([path, { type }]): [string, string] => [path, type]),
  ['/openapi.json', 'application/json'],
];

/** The content types of each page and file of the service: what it serves that the OpenAPI document does not describe. */
export const PAGE_TYPES: ReadonlyMap<string, readonly string[]> = new Map(
  types.map(([path, ...mediaTypes]) => [path, mediaTypes.map((type) => `${type}; charset=utf-8`)]),
);
