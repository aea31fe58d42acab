import { describeChange, type FieldChange, shown } from './field-changes.ts';
import type { OperatorCaller } from './run.ts';

/** Who changes something: an operator of the console, or a user of the command line. */
export type Actor = { operator: string } | OperatorCaller;

/** What the audit log records, with its words for people; the subject follows. */
const WORDS = {
  'automation.create': 'created automation',
  'automation.change': 'changed automation',
  'automation.delete': 'deleted automation',
  'automation.enable': 'enabled automation',
  'automation.disable': 'disabled automation',
  'automation.pause': 'paused automation',
  'automation.resume': 'resumed automation',
  'automation.rotate-key': 'issued a new key for automation',
  'automation.rotate-secret': 'issued a new signing secret for automation',
  'run.trigger': 'started run',
  'run.cancel': 'cancelled run',
  'run.retry': 'repeated run',
  'operator.add': 'added operator',
  'operator.remove': 'removed operator',
  'operator.link': 'made a login link for operator',
  'operator.login': 'logged in as operator',
  'operator.end-sessions': 'ended the sessions of operator',
} as const;

export type AuditAction = keyof typeof WORDS;

/** One change by a person. It holds no secrets. */
export interface AuditRecord {
  action: AuditAction;
  /** Slug of the automation, id of the run, or name of the operator. Of many runs at once: how many more. */
  subject: string;
  by: Actor;
  /** What was before and after; both are left out where they may be secrets. */
  changes?: FieldChange[];
  /** More of it, in a few words for people. */
  note?: string;
}

/** A record as the log has it. */
export interface AuditEntry extends AuditRecord {
  /** Grows with every entry. */
  id: string;
  at: Date;
}

/** Who it was, for people: `ada (console)`, `root@web-1`. */
export function actorName(by: Actor): string {
  return 'operator' in by ? `${by.operator} (console)` : `${by.user}@${by.host}`;
}

/** What was done, for people: `changed automation deploy`. */
export function describeAction({ action, subject }: Pick<AuditRecord, 'action' | 'subject'>): string {
  const isCount = action.startsWith('run.') && /^\d+$/.test(subject);
  return isCount ? `${WORDS[action]}s: ${subject} more` : `${WORDS[action]} ${subject}`;
}

/** What else is known of it, for people: `timeout: 10m → 5m, env.TOKEN: another value`. */
export function describeDetails({ action, changes = [], note }: Omit<AuditRecord, 'by' | 'subject'>): string {
  // What is made or deleted has one value of each field only.
  const side = { create: 'to', add: 'to', delete: 'from' }[action.split('.')[1] ?? ''] as
    | 'to'
    | 'from'
    | undefined;
  const described = changes.map((change) => {
    if (side === undefined) return describeChange(change);
    return change[side] === undefined ? change.field : `${change.field}: ${shown(change[side])}`;
  });
  return [...described, ...(note === undefined ? [] : [note])].join(', ');
}
