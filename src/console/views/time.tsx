import { formatAge } from '../../core/age.ts';

/** A time as its age; the script shows the exact one in the reader's zone on hover. */
export function Time({ at }: { at: Date }) {
  return (
    <time dateTime={at.toISOString()} title={at.toISOString()}>
      {formatAge(at)}
    </time>
  );
}
