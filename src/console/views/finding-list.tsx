import type { Finding } from '../../ops/findings/finding.ts';

/** What is wrong with the installation, as `orc doctor` finds it: problems first, each with its cure. */
export function FindingList({ findings }: { findings: readonly Finding[] }) {
  const problems = findings.filter(({ state }) => state === 'problem');
  const others = findings.filter(({ state }) => state === 'warning' || state === 'unknown');
  return (
    <>
      {[...problems, ...others].map(({ check, state, message, cure }) => (
        <div key={check} class={`finding ${state === 'problem' ? 'bad' : ''}`}>
          <div>
            <b>
              {state}: {check}
            </b>
            <p>{message}</p>
            {cure !== undefined && (
              <p>
                Cure: <code>{cure}</code>
              </p>
            )}
          </div>
        </div>
      ))}
    </>
  );
}
