import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type AgentAction, CHECK_ATTEMPTS, DEFAULT_ALLOWED_TOOLS } from '../../../core/actions/agent.ts';
import type { AgentReport } from '../../../core/agent-event.ts';
import { wordsOf } from '../../../core/command-line.ts';
import { withDeadline } from '../../../core/deadline.ts';
import { type AttemptResult, MAX_RESULT_BYTES, type RunOutcome } from '../../../core/run.ts';
import type { GuardedCommand } from '../../guard/guard.ts';
import { LOCK_LOST } from '../../lease.ts';
import { removeFolder } from '../../remove-folder.ts';
import { type FoundResult, readResultFile } from '../../run-result.ts';
import { mayBeRepeated, type RepositoryWork, startRepositoryWork } from '../../workspace/repository-work.ts';
import { type ActionContext, type ActionSettings, type Performer, TIMED_OUT, withResult } from '../action.ts';
import { type AttemptFiles, environmentOf, LOST_GRACE_MS, markOf, noteMissing } from '../program.ts';
import { AgentFailure } from './agent-failure.ts';
import { type AgentProcess, startAgent } from './agent-process.ts';
import { type CheckResult, runCheck } from './check.ts';
import { answerPermission } from './permissions.ts';
import { checkPrompt, firstPrompt } from './prompt.ts';
import { type AgentSession, openSession } from './session.ts';
import { CostWatch } from './spending.ts';
import { Transcript } from './transcript.ts';

/** How long an agent may take to answer at its start, in milliseconds. */
const START_MS = 60_000;

/** How long an agent that is asked to stop may take to do so, in milliseconds. */
const CANCEL_MS = 1500;

/** Between the TERM and the KILL of an agent, or a check, that must end, in milliseconds. */
const TERMINATION_GRACE_MS = 3000;

/** The same for an agent that has done its work. */
const ENDING_GRACE_MS = 500;

/** How long the last output of an agent that has ended may take to arrive, and the end of one that closed it, in milliseconds. */
const LAST_WORDS_MS = 1000;

/** Why an agent may stop without having done its work (Agent Client Protocol, "Stop Reasons"). */
const STOPPED_EARLY: ReadonlyMap<string, string> = new Map([
  ['refusal', 'The agent refused to go on.'],
  ['max_tokens', 'The agent stopped at the limit of tokens of its model.'],
  ['max_turn_requests', 'The agent stopped at its limit of requests to its model.'],
  ['cancelled', 'The agent cancelled its work by itself.'],
]);

type AgentSettings = Pick<
  ActionSettings,
  'config' | 'environment' | 'workFolders' | 'workspaces' | 'spending'
> & {
  startMs?: number;
};

/** The agent, or the check, must end; why is the reason of the context's signal or of the cost's. */
class Interrupted extends Error {}

/** A step beside the agent's work failed, and with it the attempt. */
class StepFailed extends Error {
  readonly outcome: RunOutcome;

  constructor(outcome: RunOutcome) {
    super(outcome.message);
    this.outcome = outcome;
  }
}

/** `lastLine` is without secrets. */
type Checked = CheckResult & { lastLine: string | undefined };

export function openAgents(settings: AgentSettings): Performer<AgentAction> {
  return { perform: (action, context) => new AgentAttempt(action, settings, context).perform() };
}

/** One attempt: the agent works in its workspace until the check passes, as far as it may go on. */
class AgentAttempt {
  readonly #action: AgentAction;
  readonly #settings: AgentSettings;
  readonly #context: ActionContext;
  readonly #transcript: Transcript;
  readonly #costs: CostWatch;
  /** Aborted with the context's signal, or when a limit of cost is reached. */
  readonly #ending = new AbortController();
  readonly #report: AgentReport = {};
  #costSentence: string | undefined;
  #repository: RepositoryWork | undefined;
  /** What the result tells besides the agent's last message. */
  #changes: { changed?: boolean; branch?: string; commit?: string } = {};

  constructor(action: AgentAction, settings: AgentSettings, context: ActionContext) {
    this.#action = action;
    this.#settings = settings;
    this.#context = context;
    const { run, log } = context;
    this.#costs = new CostWatch(action, settings.spending, run, log, (sentence) => {
      this.#costSentence = sentence;
      log.note(sentence);
      this.#ending.abort();
    });
    this.#transcript = new Transcript(log, (cost) => this.#costs.report(cost));
  }

  async perform(): Promise<AttemptResult | 'interrupted'> {
    const { log, guard, lease, run, signal, artifacts } = this.#context;
    const interrupt = () => this.#ending.abort();
    signal.addEventListener('abort', interrupt);
    let scratch: string | undefined;
    let guarded: GuardedCommand | undefined;
    try {
      if (!(await this.#costs.mayStart())) return this.#costLimit();
      await guard.ready;
      if (signal.aborted) return 'interrupted';
      guarded = guard.watch(run, lease);
      await this.#checkOut();
      scratch = await this.#settings.workFolders.create();
      const files = await this.#makeFiles(scratch);
      const outcome = await this.#keepChanges(await this.#work(files, guarded));
      if (signal.reason !== LOCK_LOST) await artifacts.collect(files.artifacts);
      await this.#costs.settled();
      if (outcome === 'interrupted') return outcome;
      const { cost } = this.#transcript;
      Object.assign(this.#report, cost && { cost });
      const ending = { outcome: { ...outcome, agent: this.#report }, mayRetry: mayRetry(outcome) };
      return withResult(ending, (await readResultFile(files.result)) ?? this.#lastMessage(), log);
    } catch (error) {
      if (error instanceof StepFailed) return { outcome: error.outcome, mayRetry: mayRetry(error.outcome) };
      if (!(error instanceof Interrupted)) throw error;
      const outcome = this.#outcomeOfInterruption();
      return outcome === 'interrupted' ? outcome : { outcome, mayRetry: mayRetry(outcome) };
    } finally {
      signal.removeEventListener('abort', interrupt);
      guarded?.end();
      this.#transcript.end();
      this.#tidyUp(scratch);
    }
  }

  /** A folder that cannot be removed changes nothing about how the agent ended. */
  #tidyUp(scratch: string | undefined): void {
    const { log, tidyUp } = this.#context;
    for (const removal of [scratch && removeFolder(scratch), this.#repository?.remove()]) {
      if (removal) tidyUp(removal.catch((error) => log.note(String(error))));
    }
  }

  /** @throws StepFailed, Interrupted */
  async #checkOut(): Promise<void> {
    const { repo } = this.#action;
    if (repo === undefined) return;
    const { run, log, artifacts, guard } = this.#context;
    const action = { ...this.#action, repo };
    const mark = markOf(run, guard.workerId);
    const attempt = { action, run, log, artifacts, mark, signal: this.#ending.signal };
    const started = await startRepositoryWork(this.#settings.workspaces, attempt);
    if (started.status === 'interrupted') throw new Interrupted();
    if (started.status === 'failed') throw new StepFailed(started.outcome);
    this.#repository = started.work;
  }

  /** Keeps and pushes what the agent changed. How that went counts only if all else went well. */
  async #keepChanges(outcome: RunOutcome | 'interrupted'): Promise<RunOutcome | 'interrupted'> {
    if (outcome === 'interrupted' || this.#repository === undefined) return outcome;
    const hasSucceeded = outcome.status === 'succeeded';
    const kept = await this.#repository.conclude(hasSucceeded);
    if (kept.status === 'interrupted') return hasSucceeded ? this.#outcomeOfInterruption() : outcome;
    if (kept.status === 'failed') {
      if (hasSucceeded) return kept.outcome;
      this.#context.log.note(kept.outcome.message);
      return outcome;
    }
    const { isChanged, branch, commit } = kept;
    const pushed = branch !== undefined && commit !== undefined ? { branch, commit } : {};
    Object.assign(this.#report, pushed);
    this.#changes = { changed: isChanged, ...pushed };
    if (isChanged || !hasSucceeded || this.#action.push === undefined) return outcome;
    return { ...outcome, message: `${outcome.message} Nothing was changed, so nothing was pushed.` };
  }

  async #makeFiles(scratch: string): Promise<AttemptFiles & { home: string; workspace: string }> {
    const files = {
      payload: join(scratch, 'payload.json'),
      result: join(scratch, 'result.json'),
      artifacts: join(scratch, 'artifacts'),
      home: join(scratch, 'home'),
      workspace: this.#repository?.folder ?? join(scratch, 'work'),
    };
    await writeFile(files.payload, this.#context.run.payload, { mode: 0o600 });
    for (const folder of [files.artifacts, files.home]) await mkdir(folder);
    if (this.#repository === undefined) await mkdir(files.workspace);
    return files;
  }

  /** What the agent and the check are given. */
  #environment(files: AttemptFiles & { home: string; workspace: string }): NodeJS.ProcessEnv {
    const { env, passEnv } = this.#action;
    const environment = environmentOf(this.#action, this.#settings.environment, this.#context, files);
    // What an agent keeps in its home folder stays within its attempt, unless the operator wants it otherwise.
    const home = passEnv.includes('HOME') ? environment['HOME'] : (env['HOME'] ?? files.home);
    return { ...environment, HOME: home, ORC_WORKSPACE: files.workspace };
  }

  async #work(
    files: AttemptFiles & { home: string; workspace: string },
    guarded: GuardedCommand,
  ): Promise<RunOutcome | 'interrupted'> {
    const { log, run, guard } = this.#context;
    const place = { cwd: files.workspace, env: this.#environment(files) };
    const mark = markOf(run, guard.workerId);
    const argv = [...this.#wrap(), ...(wordsOf(this.#action.agent) ?? [])];
    noteMissing(this.#action, this.#settings.environment, log, 'agent');
    let agent: AgentProcess;
    try {
      agent = await startAgent(argv, place, mark, guarded, log);
    } catch (error) {
      const message = `The agent could not be started: ${argv[0]} is not on the PATH of the worker, or cannot be executed (${(error as Error).message}).`;
      log.note(message);
      return { status: 'failed', reason: 'not_started', message };
    }
    let session: AgentSession | undefined;
    try {
      session = await this.#unlessEnded(agent, this.#openSession(agent, files.workspace));
      return await this.#turns(agent, session, files, place);
    } catch (error) {
      if (error instanceof Interrupted) {
        await this.#cancel(agent, session);
        return this.#outcomeOfInterruption();
      }
      if (error instanceof StepFailed) return error.outcome;
      if (!(error instanceof AgentFailure)) throw error;
      return { status: 'failed', reason: 'agent_failed', message: this.#transcript.error(error.message) };
    } finally {
      session?.close();
      await agent.end(this.#graceMs());
    }
  }

  #wrap(): string[] {
    return wordsOf(this.#action.wrap ?? '') ?? [];
  }

  #openSession(agent: AgentProcess, cwd: string): Promise<AgentSession> {
    const { config, startMs = START_MS } = this.#settings;
    return openSession(agent, {
      cwd,
      version: config.version,
      startMs,
      onUpdate: (update) => this.#transcript.update(update),
      onGarbage: (line) => void this.#transcript.error(`The agent printed what is not the protocol: ${line}`),
      onPermission: (request) => {
        const allowed: readonly string[] = this.#action.allow ?? DEFAULT_ALLOWED_TOOLS;
        const isAllowed = this.#transcript.permission({ ...request.toolCall }, (kind) =>
          allowed.includes(kind),
        );
        return answerPermission(request, isAllowed);
      },
    });
  }

  /** Prompt and check, until the check passes or has failed too often. */
  async #turns(
    agent: AgentProcess,
    session: AgentSession,
    files: AttemptFiles,
    place: { cwd: string; env: NodeJS.ProcessEnv },
  ): Promise<RunOutcome> {
    const { prompt, check, checkAttempts = CHECK_ATTEMPTS, protect } = this.#action;
    const { payload } = this.#context.run;
    const given = { payload, file: files.payload };
    let content = firstPrompt(prompt, given, session.takesResources);
    for (let attempt = 1; ; attempt += 1) {
      const [first] = content;
      this.#transcript.add({ type: 'prompt', text: first?.type === 'text' ? first.text : '' });
      const stopReason = this.#transcript.sentence(await this.#unlessEnded(agent, session.prompt(content)));
      this.#transcript.endTurn(stopReason);
      this.#report.stopReason = stopReason;
      if (check === undefined) return judgeStop(stopReason);
      await agent.freeze();
      await this.#beforeCheck();
      const result = await this.#check(check, attempt, place);
      this.#report.checks = attempt;
      if (result.isPassed) return checkPassed(attempt);
      if (attempt >= checkAttempts) return checkFailed(attempt, result);
      await agent.thaw();
      const text = checkPrompt(check, endingOf(result), protect);
      content = [text, result.output].map((each) => ({ type: 'text', text: each }));
    }
  }

  /** @throws StepFailed, Interrupted */
  async #beforeCheck(): Promise<void> {
    const step = await this.#repository?.beforeCheck();
    if (step?.status === 'interrupted') throw new Interrupted();
    if (step?.status === 'failed') throw new StepFailed(step.outcome);
  }

  async #check(
    check: string,
    attempt: number,
    place: { cwd: string; env: NodeJS.ProcessEnv },
  ): Promise<Checked> {
    const { log, run, guard } = this.#context;
    log.note(`Check ${attempt} runs: ${check}`);
    const mark = markOf(run, guard.workerId);
    const { signal } = this.#ending;
    const onOutput = (data: Buffer) => this.#transcript.checkOutput(data);
    const result = await runCheck(check, this.#wrap(), place, mark, onOutput, signal, TERMINATION_GRACE_MS);
    const { output: _, ...how } = result;
    const lastLine = this.#transcript.endCheck({ attempt, ...how });
    if (signal.aborted) throw new Interrupted();
    return { ...result, lastLine };
  }

  /**
   * What the agent is asked for, unless it ends before, or has to.
   *
   * @throws AgentFailure, Interrupted
   */
  #unlessEnded<T>(agent: AgentProcess, asking: Promise<T>): Promise<T> {
    const { signal } = this.#ending;
    return new Promise((resolve, reject) => {
      const interrupt = () => reject(new Interrupted());
      signal.addEventListener('abort', interrupt, { once: true });
      if (signal.aborted) interrupt();
      const hasEnded = agent.exited.then(
        (how) => new AgentFailure(`The agent ${how} before it had done its work.`),
      );
      // What it said at last is still being read.
      void hasEnded.then((failure) => setTimeout(reject, LAST_WORDS_MS, failure));
      asking.then(resolve, async (error: unknown) => {
        const isVague = error instanceof AgentFailure && error.isVague;
        reject(isVague ? await withDeadline(hasEnded, LAST_WORDS_MS).catch(() => error) : error);
      });
    });
  }

  /** How long the agent may take to end, in milliseconds. */
  #graceMs(): number {
    if (this.#context.signal.reason === LOCK_LOST) return LOST_GRACE_MS;
    return this.#ending.signal.aborted ? TERMINATION_GRACE_MS : ENDING_GRACE_MS;
  }

  /** Asks the agent to stop, and waits a moment until it has. */
  async #cancel(agent: AgentProcess, session: AgentSession | undefined): Promise<void> {
    const { signal, log, timeoutMs } = this.#context;
    if (signal.reason === TIMED_OUT) {
      log.note(`The time limit of ${timeoutMs} ms is over: the agent is told to stop.`);
    }
    if (signal.reason === LOCK_LOST || !session) return;
    await withDeadline(Promise.race([agent.exited, session.cancel()]), CANCEL_MS).catch(() => undefined);
  }

  #outcomeOfInterruption(): RunOutcome | 'interrupted' {
    const { signal, timeoutMs } = this.#context;
    if (signal.reason === TIMED_OUT) {
      const message = `The agent took longer than ${timeoutMs} ms and was ended.`;
      return { status: 'timed_out', reason: 'timeout', message };
    }
    return signal.aborted ? 'interrupted' : this.#costLimit().outcome;
  }

  #costLimit(): AttemptResult {
    const message = this.#costSentence ?? '';
    return { outcome: { status: 'failed', reason: 'max_cost', message }, mayRetry: false };
  }

  /** The result of an agent that left no file. */
  #lastMessage(): FoundResult | undefined {
    const message = this.#transcript.lastMessage;
    const text = JSON.stringify({ ...(message !== '' && { message }), ...this.#changes });
    return text === '{}' || Buffer.byteLength(text) > MAX_RESULT_BYTES ? undefined : { text };
  }
}

function judgeStop(stopReason: string): RunOutcome {
  if (stopReason === 'end_turn') {
    const message = 'The agent stopped by itself; its work was not checked.';
    return { status: 'succeeded', reason: 'agent_stopped', message };
  }
  const message = STOPPED_EARLY.get(stopReason) ?? `The agent stopped: ${stopReason}.`;
  return { status: 'failed', reason: 'agent_stopped', message };
}

function checkPassed(attempt: number): RunOutcome {
  const message = `The check passed${attempt === 1 ? '' : ` at attempt ${attempt}`}.`;
  return { status: 'succeeded', reason: 'check_passed', message, exitCode: 0 };
}

function checkFailed(attempt: number, result: Checked): RunOutcome {
  const { exitCode, signal, lastLine } = result;
  const times = attempt === 1 ? 'The check failed' : `The check failed ${attempt} times`;
  return {
    status: 'failed',
    reason: 'check_failed',
    message: `${times} (${endingOf(result)}).`,
    ...(exitCode !== undefined && { exitCode }),
    ...(signal !== undefined && { signal }),
    ...(lastLine !== undefined && { detail: lastLine }),
  };
}

function endingOf({ exitCode, signal }: CheckResult): string {
  return exitCode === undefined ? `${signal}` : `exit code ${exitCode}`;
}

/** Another attempt would cost as much again, or be judged by the same rules. */
function mayRetry({ status, reason }: RunOutcome): boolean {
  return status !== 'succeeded' && reason !== 'max_cost' && mayBeRepeated({ reason });
}
