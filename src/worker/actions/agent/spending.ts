import type { AgentAction } from '../../../core/actions/agent.ts';
import type { AgentCost } from '../../../core/agent-event.ts';
import type { RunAttempt } from '../../../core/run.ts';
import type { OutputLog } from '../../output-log.ts';

/** What the runs of automations have cost on a day, over all workers. */
export interface Spending {
  /**
   * Adds to what an automation's runs cost today (UTC), in USD.
   *
   * @returns the sum of the day
   */
  add(automationId: string, amount: number): Promise<number>;
  /** Pauses an automation: its runs are accepted and wait. */
  pause(slug: string, reason: string): Promise<unknown>;
}

/** The only currency of the limits. */
const CURRENCY = 'USD';

/**
 * Watches over what an attempt costs.
 *
 * @param onLimit is told once, in a sentence, when a limit is reached
 */
export class CostWatch {
  readonly #action: Pick<AgentAction, 'maxCost' | 'maxCostPerDay'>;
  readonly #spending: Spending;
  readonly #run: Pick<RunAttempt, 'automation' | 'automationId'>;
  readonly #log: Pick<OutputLog, 'note'>;
  readonly #onLimit: (sentence: string) => void;
  #counted = 0;
  #adding: Promise<void> = Promise.resolve();
  #hasEnded = false;
  #isForeign = false;

  constructor(
    action: Pick<AgentAction, 'maxCost' | 'maxCostPerDay'>,
    spending: Spending,
    run: Pick<RunAttempt, 'automation' | 'automationId'>,
    log: Pick<OutputLog, 'note'>,
    onLimit: (sentence: string) => void,
  ) {
    this.#action = action;
    this.#spending = spending;
    this.#run = run;
    this.#log = log;
    this.#onLimit = onLimit;
  }

  /** Whether the day's limit leaves room for an attempt; otherwise the automation is paused. */
  async mayStart(): Promise<boolean> {
    await this.#count(0);
    return !this.#hasEnded;
  }

  /** @param cost of the session so far */
  report({ amount, currency }: AgentCost): void {
    const { maxCost, maxCostPerDay } = this.#action;
    if (currency !== CURRENCY) {
      const isLimited = maxCost !== undefined || maxCostPerDay !== undefined;
      if (isLimited && !this.#isForeign)
        this.#log.note(`The agent reports its cost in ${currency}: --max-cost has no effect.`);
      this.#isForeign = true;
      return;
    }
    const added = amount - this.#counted;
    if (added <= 0) return;
    this.#counted = amount;
    if (maxCost !== undefined && amount >= maxCost) {
      this.#end(`The attempt has cost ${amount} USD, and --max-cost is ${maxCost}.`);
    }
    if (maxCostPerDay !== undefined) this.#adding = this.#adding.then(() => this.#count(added));
  }

  /** Resolves when everything that was reported is counted. */
  async settled(): Promise<void> {
    await this.#adding;
  }

  async #count(amount: number): Promise<void> {
    const { maxCostPerDay } = this.#action;
    if (maxCostPerDay === undefined) return;
    const { automation, automationId } = this.#run;
    try {
      const sum = await this.#spending.add(automationId, amount);
      if (sum < maxCostPerDay) return;
      const reason = `The runs of ${automation} have cost ${Number(sum.toFixed(4))} USD today (UTC), and --max-cost-per-day is ${maxCostPerDay}.`;
      await this.#spending.pause(automation, reason);
      this.#end(`${reason} The automation is paused; to go on: orc automations resume ${automation}`);
    } catch (error) {
      this.#log.note(`What the run costs could not be counted: ${(error as Error).message}.`);
    }
  }

  #end(sentence: string): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#onLimit(sentence);
  }
}
