import { isSigned } from '../core/automation.ts';
import { definitionOf } from '../core/automation-entry.ts';
import { type MintedSecrets, mintSecrets } from '../store/automations.ts';
import type { Store } from '../store/store.ts';
import { type ExpectedSecrets, type IssuedSecrets, type KeyFiles, openKeyFiles } from './key-files.ts';
import { CommandError, type Output } from './output.ts';
import { forPrograms, type Step } from './plan.ts';

/**
 * Carries out a plan step by step, and prints the issued secrets or writes them to files.
 *
 * @throws CommandError when an automation has changed since the plan was made
 */
export async function carryOut(
  plan: readonly Step[],
  store: Store,
  { keysDir, json }: { keysDir?: string | undefined; json?: boolean | undefined },
  output: Output,
): Promise<void> {
  const expected = plan.flatMap(expectedOf);
  // The files are reserved first: a secret that cannot be written must not be issued.
  const files = keysDir === undefined ? undefined : await openKeyFiles(keysDir, expected);
  const secrets: IssuedSecrets[] = [];
  const done: Step[] = [];
  const print = (issued: IssuedSecrets) => {
    secrets.push(issued);
    // Printed at once, because the next step may fail.
    if (!json) showSecrets(issued, output);
  };
  try {
    for (const step of plan) {
      const minted = mintSecrets();
      // On the disk before they are valid: a key that was issued must not be lost.
      await files?.prepare(step.slug, minted);
      const issued = await carryOutStep(step, store, minted).catch(async (error: unknown) => {
        if (!(error instanceof CommandError)) await leaveFiles(files, step.slug, json ? undefined : output);
        throw error;
      });
      done.push(step);
      if (!issued) continue;
      if (files) await issueOrPrint(files, issued, print);
      else print(issued);
    }
  } finally {
    await files?.close();
    if (json) output.json({ applied: done.length === plan.length, plan: done.map(forPrograms), secrets });
  }
  if (files && !json && expected.length > 0) output.line(`The keys are in ${keysDir}.`);
}

/** The secrets that a step issues. */
function expectedOf(step: Step): ExpectedSecrets[] {
  if (step.change !== 'create' && step.change !== 'change') return [];
  const { slug, entry } = step;
  const hasApiKey = step.change === 'create';
  const hadSigningSecret = step.change === 'change' && isSigned(step.seen);
  const hasSigningSecret = isSigned(definitionOf(slug, entry)) && !hadSigningSecret;
  return hasApiKey || hasSigningSecret ? [{ slug, hasApiKey, hasSigningSecret }] : [];
}

/** Redis may have carried out a step although its answer did not come. */
async function leaveFiles(files: KeyFiles | undefined, slug: string, output?: Output): Promise<void> {
  const paths = (await files?.leave(slug)) ?? [];
  if (paths.length === 0) return;
  output?.err(
    `orc: Whether ${slug} was changed is not known. If so, its secrets are in ${paths.join(' and ')}.\n`,
  );
}

/** @throws CommandError when it was printed instead */
async function issueOrPrint(
  files: KeyFiles,
  issued: IssuedSecrets,
  print: (issued: IssuedSecrets) => void,
): Promise<void> {
  try {
    await files.issue(issued.slug);
  } catch (error) {
    print(issued);
    throw new CommandError(
      `The secrets of ${issued.slug} could not be put into files (${(error as Error).message}) and are printed instead. The rest of the plan was not carried out. Free disk space, then run the command again.`,
      { cause: error },
    );
  }
}

/** @returns the secrets that it issued */
async function carryOutStep(
  step: Step,
  { automations }: Store,
  minted: MintedSecrets,
): Promise<IssuedSecrets | undefined> {
  const { change, slug } = step;
  if (change === 'create') {
    const created = await automations.create(definitionOf(slug, step.entry), minted);
    if (created.status === 'exists') throw changedMeanwhile(slug);
    const { apiKey, signingSecret } = created;
    return { slug, apiKey, ...(signingSecret !== undefined && { signingSecret }) };
  }
  if (change === 'change') {
    const replaced = await automations.replace(step.seen, definitionOf(slug, step.entry), minted);
    if (replaced.status === 'conflict') throw changedMeanwhile(slug);
    const { signingSecret } = replaced;
    return signingSecret === undefined ? undefined : { slug, signingSecret };
  }
  if (change === 'delete') await automations.delete(slug);
  return undefined;
}

function changedMeanwhile(slug: string): CommandError {
  return new CommandError(
    `Somebody else changed ${slug} in the meantime; it and the rest of the plan were left unchanged. Run the command again.`,
  );
}

function showSecrets({ slug, apiKey, signingSecret }: IssuedSecrets, output: Output): void {
  if (apiKey !== undefined)
    output.line(`${slug}: API key, never shown again: ${output.style('bold', apiKey)}`);
  if (signingSecret !== undefined) {
    output.line(`${slug}: signing secret, never shown again: ${output.style('bold', signingSecret)}`);
  }
}
