import type { Store } from '../../store/store.ts';
import { describeKept, isKeptFull } from '../kept.ts';
import { type Finding, ok, warning } from './finding.ts';

/** Whether the logs, results and artifacts of ended runs stay as long as the runs. @param keepBytes KEEP_BYTES, if it is set */
export async function checkKept(store: Store, keepBytes: number | undefined): Promise<Finding> {
  const usage = await store.kept.usage(keepBytes);
  const message = `logs, results and artifacts of ended runs take ${describeKept(usage)}`;
  if (!isKeptFull(usage)) return ok('kept', message);
  const [most] = usage.automations;
  const cure = 'raise KEEP_BYTES for the workers';
  const other = most && `, or let ${most.slug} print and leave less, or keep fewer runs: --keep-runs`;
  return warning('kept', `${message}; those of the oldest runs are being removed`, `${cure}${other ?? ''}`);
}
