import { type AuditEntry, actorName, describeAction, describeDetails } from '../../core/audit.ts';
import { Time } from './time.tsx';

interface AuditProps {
  /** The latest first. */
  entries: readonly AuditEntry[];
  /** Leads to the entries before these, if there are any. */
  older: string | undefined;
  /** Whether these are the latest ones. */
  isLatest: boolean;
}

/** Who changed what, and when. */
export function Audit({ entries, older, isLatest }: AuditProps) {
  return (
    <>
      <h1>Audit</h1>
      <p class="quiet">
        Every change by a person, in this console and on the command line. The last 10,000 are kept; in a
        terminal: <code>orc audit</code>
      </p>
      {entries.length === 0 ? (
        <p class="empty">{isLatest ? 'Nothing was changed yet.' : 'There are no older entries.'}</p>
      ) : (
        <table class="stack">
          <thead>
            <tr>
              <th>Who</th>
              <th>What</th>
              <th>Details</th>
              <th class="num">When</th>
            </tr>
          </thead>
          <tbody>
            {entries.map((entry) => (
              <tr key={entry.id}>
                <td>{actorName(entry.by)}</td>
                <td>
                  <What entry={entry} />
                </td>
                <td class="wide">{describeDetails(entry)}</td>
                <td class="num">
                  <Time at={entry.at} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      <p>
        {!isLatest && <a href="/audit">Latest</a>} {older !== undefined && <a href={older}>Older</a>}
      </p>
    </>
  );
}

/** A deleted automation, and a run that is no longer kept, have no page. */
function What({ entry }: { entry: AuditEntry }) {
  const { action, subject } = entry;
  const text = describeAction(entry);
  const isGone = action === 'automation.delete';
  if (action.startsWith('automation.') && !isGone) return <a href={`/automations/${subject}`}>{text}</a>;
  if (subject.startsWith('run_')) return <a href={`/runs/${subject}`}>{text}</a>;
  return <>{text}</>;
}
