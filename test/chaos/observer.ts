import { setTimeout as sleep } from 'node:timers/promises';
import { withDeadline } from '../../src/core/deadline.ts';
import { isTerminal, type Run } from '../../src/core/run.ts';
import type { Store } from '../../src/store/store.ts';
import type { Chance } from './chance.ts';
import type { History, TerminalState } from './history.ts';

const ROUND_MS = 100;
const READ_DEADLINE_MS = 2000;

/** Runs read at the same time. */
const PARALLEL = 32;

/** Ended runs that are read again in each round. */
const SAMPLED = 8;

/** An open run is read again after this share of its age, but after so many milliseconds at the latest. */
const AGE_SHARE = 0.5;
const LONGEST_PAUSE_MS = 3000;

interface OpenRun {
  slug: string;
  acceptedAt: number;
  nextReadAt: number;
}

/** Follows every run that was promised until it has ended, and looks now and then whether it stays as it ended. */
export class Observer {
  readonly #store: Store;
  readonly #history: History;
  readonly #chance: Chance;
  readonly #open = new Map<string, OpenRun>();
  readonly #ended: string[] = [];
  /** Since when the end of a run is known, in milliseconds of `performance.now()`. */
  readonly #knownAt = new Map<string, number>();
  #isClosed = false;
  #work: Promise<void> | undefined;
  /** How often an ended run was read again. */
  rereads = 0;

  constructor(store: Store, history: History, chance: Chance) {
    this.#store = store;
    this.#history = history;
    this.#chance = chance;
  }

  start(): void {
    this.#work = this.#observe();
  }

  follow(runId: string, slug: string): void {
    if (this.#open.has(runId) || this.#history.terminal.has(runId)) return;
    this.#open.set(runId, { slug, acceptedAt: Date.now(), nextReadAt: Date.now() + ROUND_MS });
  }

  /** How many runs of an automation have not ended, as far as is known. */
  openOf(slug: string): number {
    let count = 0;
    for (const open of this.#open.values()) if (open.slug === slug) count += 1;
    return count;
  }

  /** Runs accepted before a moment that have not ended, as far as is known. */
  openBefore(moment: number): string[] {
    return [...this.#open].filter(([, { acceptedAt }]) => acceptedAt < moment).map(([runId]) => runId);
  }

  /**
   * Compares a run with how it was first seen to have ended.
   *
   * @param readAt when reading it began: a read that began before the end was known may be late
   */
  note(run: Run, readAt: number): void {
    const known = this.#history.terminal.get(run.id);
    const before = this.#history.isEndUndone(known?.endedAt) ? undefined : known;
    const now = stateOf(run);
    if (before) {
      const isSame = JSON.stringify(before) === JSON.stringify(now);
      if (!isSame && readAt > (this.#knownAt.get(run.id) ?? 0)) this.#changed(run.id, before, now);
    } else if (isTerminal(run.status)) {
      this.#open.delete(run.id);
      this.#history.terminal.set(run.id, now);
      this.#knownAt.set(run.id, performance.now());
      this.#ended.push(run.id);
    }
  }

  /** Forgets what a restore has undone, and follows again what is left of it. */
  async restored(): Promise<void> {
    const undone = [...this.#history.terminal].filter(([, { endedAt }]) =>
      this.#history.isEndUndone(endedAt),
    );
    for (const [runId] of undone) this.#history.terminal.delete(runId);
    for (const runId of [...this.#open.keys(), ...undone.map(([id]) => id)]) {
      const run = await this.#store.runs.get(runId);
      if (run) this.follow(runId, run.automation);
      else this.#open.delete(runId);
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#work;
  }

  async #observe(): Promise<void> {
    while (!this.#isClosed) {
      const now = Date.now();
      const due = [...this.#open].filter(([, { nextReadAt }]) => nextReadAt <= now).map(([runId]) => runId);
      const sample = Array.from({ length: Math.min(SAMPLED, this.#ended.length) }, () =>
        this.#chance.pick(this.#ended),
      );
      this.rereads += sample.length;
      const all = [...due, ...sample];
      for (let start = 0; start < all.length && !this.#isClosed; start += PARALLEL) {
        await Promise.all(all.slice(start, start + PARALLEL).map((runId) => this.#read(runId)));
      }
      await sleep(ROUND_MS);
    }
  }

  async #read(runId: string): Promise<void> {
    const readAt = performance.now();
    try {
      const run = await withDeadline(this.#store.runs.get(runId), READ_DEADLINE_MS);
      if (run) this.note(run, readAt);
      // It was there when it was promised: what took it away is judged in the end.
      else this.#open.delete(runId);
    } catch {
      // Redis is away; the run is read again.
    }
    const open = this.#open.get(runId);
    if (!open) return;
    const pauseMs = Math.min((Date.now() - open.acceptedAt) * AGE_SHARE, LONGEST_PAUSE_MS);
    open.nextReadAt = Date.now() + pauseMs;
  }

  #changed(runId: string, before: TerminalState, now: TerminalState): void {
    const message = `it had ended as ${JSON.stringify(before)} and became ${JSON.stringify(now)}`;
    this.#history.incidents.push({ kind: 'ended run changed', message, runId });
  }
}

function stateOf(run: Run): TerminalState {
  return { status: run.status, endedAt: run.endedAt?.getTime(), message: run.outcome?.message };
}
