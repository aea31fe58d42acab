import { type ExamineLimits, examineStore } from '../ops/findings/examine-store.ts';
import type { Finding } from '../ops/findings/finding.ts';
import type { SurveyedAutomation } from '../store/automation-survey.ts';
import type { QueueDepth } from '../store/runs.ts';
import type { Store } from '../store/store.ts';
import { SharedReading } from './shared-reading.ts';

/** What "failing" means: kept runs that failed so recently, in milliseconds. */
const LATELY_MS = 3_600_000;

/** What the console reads for all of its watchers at once. */
export interface Readings {
  survey: SharedReading<SurveyedAutomation[]>;
  findings: SharedReading<Finding[]>;
  /** What waits. */
  depth: SharedReading<QueueDepth>;
}

export function openReadings(store: Store, limits: ExamineLimits): Readings {
  return {
    survey: new SharedReading(() => store.survey.read(new Date(Date.now() - LATELY_MS)), {
      freshMs: 5000,
      usableMs: 30_000,
    }),
    depth: new SharedReading(() => store.runs.depth(), { freshMs: 2000, usableMs: 10_000 }),
    findings: new SharedReading(() => examineStore(store, limits), {
      freshMs: 20_000,
      usableMs: 120_000,
    }),
  };
}
