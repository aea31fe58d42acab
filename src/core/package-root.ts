import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

/** The folder of package.json, as a URL that ends in `/`; independent of where this file is compiled to. */
export const PACKAGE_ROOT = new URL(
  './',
  pathToFileURL(createRequire(import.meta.url).resolve('#package.json')),
);
