import { visible } from '../../core/visible-text.ts';

interface PatchProps {
  /** A unified diff. */
  text: string;
  isWhole: boolean;
}

/** Changes with colours, as git shows them in a terminal. */
export function Patch({ text, isWhole }: PatchProps) {
  return (
    <>
      <h2>
        Changes {!isWhole && <span class="quiet">the beginning only; all of it is among the artifacts</span>}
      </h2>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: the keyboard scrolls it */}
      <section class="term" aria-label="Changes" tabIndex={0}>
        {text
          .trimEnd()
          .split('\n')
          .map((line, index) => (
            <div key={index} class={styleOf(line)}>
              {visible(line, '\t')}
            </div>
          ))}
      </section>
    </>
  );
}

function styleOf(line: string): string | undefined {
  if (/^(diff |index |--- |\+\+\+ )/.test(line)) return 'bold';
  if (line.startsWith('@@')) return 'fg6';
  if (line.startsWith('+')) return 'fg2';
  return line.startsWith('-') ? 'fg1' : undefined;
}
