import type { Actor, AuditAction, AuditRecord } from '../core/audit.ts';
import type { Automation } from '../core/automation.ts';
import { writeDuration } from '../core/durations.ts';
import { differences, fieldsOf } from '../core/field-changes.ts';
import type { AutomationStore } from './automations.ts';
import type { OperatorStore } from './operators.ts';
import { newRunId } from './run-id.ts';
import type { RunQueue } from './runs.ts';
import type { Store } from './store.ts';

/** Every function of the store by which people change something. The audit log has an entry for each of them. */
const CHANGES = {
  automations: ['create', 'setEnabled', 'setPaused', 'replace', 'delete', 'rotateKey', 'rotateSecret'],
  runs: ['accept', 'cancel', 'retry'],
  operators: ['add', 'remove', 'createLink', 'login', 'endSessions'],
} as const satisfies {
  automations: (keyof AutomationStore)[];
  runs: (keyof RunQueue)[];
  operators: (keyof OperatorStore)[];
};

type Changes<Group extends keyof typeof CHANGES> = Pick<
  Store[Group],
  (typeof CHANGES)[Group][number] & keyof Store[Group]
>;

/** Runs that one command or request changes one by one in the log; of the others it says how many. */
const MAX_RUNS_NAMED = 20;

/** An entry of the audit log, without who. */
type Entry = Omit<AuditRecord, 'by'>;

/**
 * The store for somebody: what they change is in the audit log. The command line and the routes of the console get no other one.
 *
 * An entry is written before its change, and taken back when the change is refused: a crash in between leaves an entry of a
 * change that was not made, never a change without an entry. If Redis takes no entry, as when its memory is full, the change is
 * made all the same: whoever is to be shut out must be shut out then, too. A change that fails may have been made; its entry stays.
 *
 * @param onUnrecorded is called when a change was made, but Redis took its entry neither before nor after
 */
export function auditedStore(store: Store, by: Actor, onUnrecorded: (error: unknown) => void): Store {
  const { automations, runs, operators, audit } = store;
  const record = async (entry: Entry, who = by) => {
    await audit.append({ ...entry, by: who }).catch(onUnrecorded);
  };
  const recorded = async <T>(
    entry: Entry,
    change: () => Promise<T>,
    isMade: (result: T) => boolean,
  ): Promise<T> => {
    const id = await audit.append({ ...entry, by }).catch(() => undefined);
    const result = await change();
    if (isMade(result)) {
      if (id === undefined) await record(entry);
    } else if (id !== undefined) {
      await audit.withdraw(id).catch(() => undefined);
    }
    return result;
  };

  const named = new Set<string>();
  const unnamed = new Map<AuditAction, number>();
  /** The first runs are named before they are changed, the others counted after it. */
  const recordedRun = async <T>(
    entry: Entry,
    change: () => Promise<T>,
    isMade: (result: T) => boolean,
  ): Promise<T> => {
    const { action, subject } = entry;
    const key = `${action} ${subject}`;
    // An executing run is asked to end again and again until it has.
    if (named.has(key)) return change();
    named.add(key);
    if (named.size <= MAX_RUNS_NAMED) return recorded(entry, change, isMade);
    const result = await change();
    if (isMade(result)) unnamed.set(action, (unnamed.get(action) ?? 0) + 1);
    return result;
  };
  const recordUnnamed = async () => {
    const counts = [...unnamed];
    unnamed.clear();
    for (const [action, count] of counts) await record({ action, subject: `${count}` });
  };

  const automationChanges: Changes<'automations'> = {
    create: (definition, secrets) =>
      recorded(
        { action: 'automation.create', subject: definition.slug, changes: fieldsOf(definition, 'to') },
        () => automations.create(definition, secrets),
        ({ status }) => status === 'created',
      ),
    setEnabled: async (slug, enabled) => {
      const before = await automations.get(slug);
      const change = () => automations.setEnabled(slug, enabled);
      if (!before || before.enabled === enabled) return change();
      const action = enabled ? 'automation.enable' : 'automation.disable';
      return recorded({ action, subject: slug }, change, (isDone) => isDone);
    },
    setPaused: async (slug, paused) => {
      const before = await automations.get(slug);
      const change = () => automations.setPaused(slug, paused);
      if (!before || (before.pausedAt !== undefined) === paused) return change();
      const action = paused ? 'automation.pause' : 'automation.resume';
      return recorded({ action, subject: slug }, change, (id) => id !== undefined);
    },
    replace: (seen, definition, secrets) =>
      recorded(
        { action: 'automation.change', subject: seen.slug, changes: differences(seen, definition) },
        () => automations.replace(seen, definition, secrets),
        ({ status }) => status === 'replaced',
      ),
    delete: async (slug) => {
      const before: Automation | undefined = await automations.get(slug);
      const changes = before && { changes: fieldsOf(before, 'from') };
      return recorded(
        { action: 'automation.delete', subject: slug, ...changes },
        () => automations.delete(slug),
        (isDone) => isDone,
      );
    },
    rotateKey: (slug, graceMs) =>
      recorded(
        { action: 'automation.rotate-key', subject: slug, note: oldUntil(graceMs) },
        () => automations.rotateKey(slug, graceMs),
        ({ status }) => status === 'rotated',
      ),
    rotateSecret: (slug, graceMs) =>
      recorded(
        { action: 'automation.rotate-secret', subject: slug, note: oldUntil(graceMs) },
        () => automations.rotateSecret(slug, graceMs),
        ({ status }) => status === 'rotated',
      ),
  };

  const runChanges: Changes<'runs'> = {
    accept: (automation, run, limits) =>
      recordedRun(
        { action: 'run.trigger', subject: run.id, note: `of ${automation.slug}` },
        () => runs.accept(automation, run, limits),
        ({ status }) => status === 'accepted',
      ),
    cancel: (runId) =>
      recordedRun(
        { action: 'run.cancel', subject: runId },
        () => runs.cancel(runId),
        (result) => result === 'cancelled' || result === 'requested',
      ),
    retry: (runId, automation, limits, newId = newRunId()) =>
      recordedRun(
        { action: 'run.retry', subject: runId, note: `as ${newId}` },
        () => runs.retry(runId, automation, limits, newId),
        ({ status }) => status === 'accepted',
      ),
  };

  const operatorChanges: Changes<'operators'> = {
    add: (name, role) =>
      recorded(
        { action: 'operator.add', subject: name, changes: [{ field: 'role', to: role }] },
        () => operators.add(name, role),
        (isDone) => isDone,
      ),
    remove: (name) =>
      recorded(
        { action: 'operator.remove', subject: name },
        () => operators.remove(name),
        (isDone) => isDone,
      ),
    createLink: (name) =>
      recorded(
        { action: 'operator.link', subject: name },
        () => operators.createLink(name),
        (link) => link !== undefined,
      ),
    // Recorded afterwards, as only a link that works says who it is; nobody has the session before that.
    login: async (linkToken, origin) => {
      const session = await operators.login(linkToken, origin);
      if (session) {
        const { name } = session.operator;
        const note = `from ${origin.address}`;
        await record({ action: 'operator.login', subject: name, note }, { operator: name });
      }
      return session;
    },
    endSessions: (name) =>
      recorded(
        { action: 'operator.end-sessions', subject: name },
        () => operators.endSessions(name),
        (count) => count > 0,
      ),
  };

  return {
    ...store,
    automations: withMethods(automations, automationChanges),
    runs: withMethods(runs, runChanges),
    operators: withMethods(operators, operatorChanges),
    close: async () => {
      await recordUnnamed();
      await store.close();
    },
  };
}

/** The store for reading: its functions that change something throw. */
export function readingStore(store: Store): Store {
  const refusing = <Group extends keyof typeof CHANGES>(group: Group) => {
    const refuse = () => {
      throw new Error(`This store is for reading; change ${group} by the store of the request.`);
    };
    const methods = Object.fromEntries(CHANGES[group].map((name) => [name, refuse]));
    return withMethods<Store[Group]>(store[group], methods as Partial<Store[Group]>);
  };
  return {
    ...store,
    automations: refusing('automations'),
    runs: refusing('runs'),
    operators: refusing('operators'),
  };
}

/** An object with some of its methods replaced. The others work on the object itself, whose private fields they need. */
function withMethods<T extends object>(target: T, methods: Partial<T>): T {
  return new Proxy(target, {
    get: (_target, name) => {
      if (Object.hasOwn(methods, name)) return Reflect.get(methods, name);
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}

function oldUntil(graceMs: number): string {
  return graceMs === 0 ? 'the old one is invalid' : `the old one stays valid for ${writeDuration(graceMs)}`;
}
