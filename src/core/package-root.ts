import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

/** The folder of package.json, as a URL with a `/` at its end, for this file wherever it was compiled to. */
export const PACKAGE_ROOT = new URL(
  './',
  pathToFileURL(createRequire(import.meta.url).resolve('#package.json')),
);
