import type { Store } from '../store/store.ts';

/** So many automations are read and written at a time: to write YAML takes long, and others wait for their pages. */
const BATCH = 50;

const FIRST_LINE = 'automations:\n';

/** What `orc export` prints, in pieces. */
export async function* automationFileText({
  automations,
}: Pick<Store, 'automations'>): AsyncGenerator<string> {
  // The library is loaded for those who ask for it.
  const { writeAutomationFile } = await import('../ops/automation-yaml.ts');
  let isFirst = true;
  for (let slugs: string[] = ['']; slugs.length > 0; ) {
    slugs = await automations.slugsFrom('', slugs.at(-1) ?? '', BATCH);
    const read = await Promise.all(slugs.map((slug) => automations.get(slug)));
    const found = read.filter((automation) => automation !== undefined);
    if (found.length === 0) continue;
    const text = writeAutomationFile(found);
    yield isFirst ? text : `\n${text.slice(text.indexOf(FIRST_LINE) + FIRST_LINE.length)}`;
    isFirst = false;
  }
  if (isFirst) yield writeAutomationFile([]);
}
