import { fileURLToPath } from 'node:url';
import { Document, isMap, isNode, isScalar, isSeq, type YAMLMap } from 'yaml';
import type { Automation } from '../core/automation.ts';
import { type AutomationEntry, entryOf, SCHEMA_FILE } from '../core/automation-entry.ts';
import { PACKAGE_ROOT } from '../core/package-root.ts';

export function entriesOf(automations: readonly Automation[]): Record<string, AutomationEntry> {
  return Object.fromEntries(automations.map((automation) => [automation.slug, entryOf(automation)]));
}

/** First lines of what `orc export` prints. */
const HEADER = [
  ` yaml-language-server: $schema=${fileURLToPath(new URL(SCHEMA_FILE, PACKAGE_ROOT))}`,
  ' Written by `orc export`, read by `orc apply -f`. It has no API keys and signing secrets, but the values of env:.',
].join('\n');

/** The file that describes these automations: to apply it changes nothing. */
export function writeAutomationFile(automations: readonly Automation[]): string {
  const document = new Document({ automations: entriesOf(automations) });
  document.commentBefore = HEADER;
  const entries = document.get('automations') as YAMLMap;
  entries.items.forEach((pair, index) => {
    // An empty line between two automations; lists of words on one line.
    if (index > 0 && isNode(pair.key)) pair.key.spaceBefore = true;
    if (!isMap(pair.value)) return;
    for (const { value } of pair.value.items) {
      if (isSeq(value))
        value.flow = !value.items.some((item) => isScalar(item) && /\n/.test(String(item.value)));
    }
  });
  return document.toString({ lineWidth: 0, flowCollectionPadding: false });
}
