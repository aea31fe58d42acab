import type { Actor, AuditAction, AuditRecord } from '../core/audit.ts';
import type { Automation } from '../core/automation.ts';
import { differences, fieldsOf } from '../core/field-changes.ts';
import type { AutomationStore } from './automations.ts';
import type { OperatorStore } from './operators.ts';
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

/**
 * The store for somebody: what they change is in the audit log. The command line and the routes of the console get no other one.
 *
 * @param onUnrecorded is called when a change was made, but Redis did not take its entry
 */
export function auditedStore(store: Store, by: Actor, onUnrecorded: (error: unknown) => void): Store {
  const { automations, runs, operators, audit } = store;
  const record = async (action: AuditAction, subject: string, more: Partial<AuditRecord> = {}) => {
    await audit.append({ action, subject, by, ...more }).catch(onUnrecorded);
  };
  const named = new Set<string>();
  const unnamed = new Map<AuditAction, number>();
  const recordRun = async (action: AuditAction, runId: string, note?: string) => {
    // An executing run is asked to end again and again until it has.
    const key = `${action} ${runId}`;
    if (named.has(key)) return;
    named.add(key);
    if (named.size <= MAX_RUNS_NAMED) await record(action, runId, note === undefined ? {} : { note });
    else unnamed.set(action, (unnamed.get(action) ?? 0) + 1);
  };
  const recordUnnamed = async () => {
    const counts = [...unnamed];
    unnamed.clear();
    for (const [action, count] of counts) await record(action, `${count}`);
  };

  const automationChanges: Changes<'automations'> = {
    create: async (definition, secrets) => {
      const created = await automations.create(definition, secrets);
      if (created.status === 'created') {
        await record('automation.create', definition.slug, { changes: fieldsOf(definition, 'to') });
      }
      return created;
    },
    setEnabled: async (slug, enabled) => {
      const before = await automations.get(slug);
      const isDone = await automations.setEnabled(slug, enabled);
      if (isDone && before?.enabled !== enabled) {
        await record(enabled ? 'automation.enable' : 'automation.disable', slug);
      }
      return isDone;
    },
    setPaused: async (slug, paused) => {
      const before = await automations.get(slug);
      const id = await automations.setPaused(slug, paused);
      if (id !== undefined && (before?.pausedAt !== undefined) !== paused) {
        await record(paused ? 'automation.pause' : 'automation.resume', slug);
      }
      return id;
    },
    replace: async (seen, definition, secrets) => {
      const replaced = await automations.replace(seen, definition, secrets);
      if (replaced.status === 'replaced') {
        await record('automation.change', seen.slug, { changes: differences(seen, definition) });
      }
      return replaced;
    },
    delete: async (slug) => {
      const before: Automation | undefined = await automations.get(slug);
      const isDone = await automations.delete(slug);
      if (isDone) await record('automation.delete', slug, before && { changes: fieldsOf(before, 'from') });
      return isDone;
    },
    rotateKey: async (slug, graceMs) => {
      const rotated = await automations.rotateKey(slug, graceMs);
      if (rotated.status === 'rotated') {
        await record('automation.rotate-key', slug, { note: oldUntil(graceMs, rotated.previousKeyEndsAt) });
      }
      return rotated;
    },
    rotateSecret: async (slug, graceMs) => {
      const rotated = await automations.rotateSecret(slug, graceMs);
      if (rotated.status === 'rotated') {
        const note = oldUntil(graceMs, rotated.previousSecretEndsAt);
        await record('automation.rotate-secret', slug, { note });
      }
      return rotated;
    },
  };

  const runChanges: Changes<'runs'> = {
    accept: async (automation, run, limits) => {
      const verdict = await runs.accept(automation, run, limits);
      if (verdict.status === 'accepted')
        await recordRun('run.trigger', verdict.runId, `of ${automation.slug}`);
      return verdict;
    },
    cancel: async (runId) => {
      const result = await runs.cancel(runId);
      if (result === 'cancelled' || result === 'requested') await recordRun('run.cancel', runId);
      return result;
    },
    retry: async (runId, automation, limits) => {
      const verdict = await runs.retry(runId, automation, limits);
      if (verdict.status === 'accepted') await recordRun('run.retry', runId, `as ${verdict.runId}`);
      return verdict;
    },
  };

  const operatorChanges: Changes<'operators'> = {
    add: async (name, role) => {
      const isDone = await operators.add(name, role);
      if (isDone) await record('operator.add', name, { changes: [{ field: 'role', to: role }] });
      return isDone;
    },
    remove: async (name) => {
      const isDone = await operators.remove(name);
      if (isDone) await record('operator.remove', name);
      return isDone;
    },
    createLink: async (name) => {
      const link = await operators.createLink(name);
      if (link) await record('operator.link', name);
      return link;
    },
    login: async (linkToken, origin) => {
      const session = await operators.login(linkToken, origin);
      if (session) {
        // Nobody is logged in before.
        const { name } = session.operator;
        await record('operator.login', name, { by: { operator: name }, note: `from ${origin.address}` });
      }
      return session;
    },
    endSessions: async (name) => {
      const count = await operators.endSessions(name);
      if (count > 0) await record('operator.end-sessions', name);
      return count;
    },
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

function oldUntil(graceMs: number, endsAt: Date): string {
  return graceMs === 0 ? 'the old one is invalid' : `the old one is valid until ${endsAt.toISOString()}`;
}
