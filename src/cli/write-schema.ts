import { readFile, writeFile } from 'node:fs/promises';
import { SCHEMA_FILE } from '../core/automation-entry.ts';
import { PACKAGE_ROOT } from '../core/package-root.ts';
import { schemaText } from './automation-file.ts';

/** Writes the JSON Schema of automations.yaml; with `--check`, fails when the file is out of date. */
const file = new URL(SCHEMA_FILE, PACKAGE_ROOT);
const text = schemaText();

if (!process.argv.includes('--check')) {
  await writeFile(file, text);
} else if ((await readFile(file, 'utf8').catch(() => '')) !== text) {
  process.stderr.write(`${SCHEMA_FILE} is out of date. Run \`npm run openapi\` and commit it.\n`);
  process.exitCode = 1;
}
