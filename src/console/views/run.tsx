import type { ComponentChildren } from 'preact';
import { describeOmitted } from '../../core/artifact.ts';
import { formatDuration } from '../../core/durations.ts';
import { type Caller, HELD, isTerminal, type Run, shortRunId } from '../../core/run.ts';
import { durationOf } from '../../core/run-duration.ts';
import type { EventDelivery } from '../../core/run-event.ts';
import { visible } from '../../core/visible-text.ts';
import type { RunDetails } from '../run-details.ts';
import { Patch } from './patch.tsx';
import { RunLogView } from './run-log.tsx';
import { RunTimeline } from './run-timeline.tsx';
import { Status } from './status.tsx';
import { Time } from './time.tsx';

/** Of a payload and a result on the page, in characters. */
const SHOWN_CHARACTERS = 8000;

interface RunProps {
  details: RunDetails;
  /** Whether the operator may cancel and retry. */
  isAdmin: boolean;
}

/** The page of one run. What is marked `data-part` the script replaces when the run's state changes. */
export function RunView({ details, isAdmin }: RunProps) {
  const { run, attempts, log, patch, state, isCancelling, wasDropped } = details;
  return (
    <div data-run={run.id} data-state={state}>
      <div data-part="head">
        <h1>
          <Status status={run.status} />
          <a href={`/automations/${run.automation}`}>{run.automation}</a>
          <span class="mono quiet">{shortRunId(run.id)}</span>
        </h1>
        {isCancelling && <p role="status">An operator has cancelled this run; its worker is ending it.</p>}
        {isAdmin && <RunActions run={run} isCancelling={isCancelling} />}
        <RunTimeline run={run} attempts={attempts} />
        <Reason run={run} />
      </div>
      <div class="split">
        <div>
          <RunLogView run={run} log={log} wasDropped={wasDropped} />
          <div data-part="patch">{patch && <Patch {...patch} />}</div>
        </div>
        <aside data-part="facts" aria-label="About the run">
          <RunFacts details={details} />
        </aside>
      </div>
    </div>
  );
}

/** Each says what it does before it does it. */
function RunActions({ run: { id, automation, status }, isCancelling }: { run: Run; isCancelling: boolean }) {
  if (isTerminal(status)) {
    return (
      <details class="ask">
        <summary class="btn">Retry…</summary>
        <form method="post" action={`/runs/${id}/retry`}>
          <p>
            Starts a new run of {automation} with the same payload, as the automation is set up now. This run
            stays as it is.
          </p>
          <button class="btn main" type="submit">
            Start a new run
          </button>
        </form>
      </details>
    );
  }
  if (isCancelling) return null;
  const isRunning = status === 'running';
  return (
    <details class="ask">
      <summary class="btn">Cancel…</summary>
      <form method="post" action={`/runs/${id}/cancel`}>
        <p>
          {isRunning
            ? 'Its processes get TERM and, 5 seconds later, KILL. What they have done stays done. There is no further attempt.'
            : 'The run ends and never starts.'}
        </p>
        <button class="btn bad" type="submit">
          Cancel the run
        </button>
      </form>
    </details>
  );
}

function Reason({ run: { outcome, status } }: { run: Run }) {
  if (!outcome || status === 'running') return null;
  const { message, detail } = outcome;
  const isBad = status === 'failed' || status === 'timed_out' || status === 'retrying';
  return (
    <div class={isBad ? 'reason' : 'reason calm'}>
      {detail !== undefined && <b>{visible(detail)}</b>}
      <p>{visible(message)}</p>
    </div>
  );
}

function RunFacts({ details }: { details: RunDetails }) {
  const { run, dueAt, payload, result, artifacts, events, wasDropped } = details;
  const { id, outcome } = run;
  const resultNote = outcome?.resultProblem ?? (wasDropped ? 'removed to stay within KEEP_BYTES' : 'none');
  return (
    <>
      <h2>Facts</h2>
      <dl class="facts">
        <Fact name="Run">
          <span class="mono">{id}</span>
        </Fact>
        <Fact name="Accepted">
          <Time at={run.acceptedAt} />
        </Fact>
        <Fact name="Started">{run.firstStartedAt && <Time at={run.firstStartedAt} />}</Fact>
        <Fact name="Ended">{run.endedAt && <Time at={run.endedAt} />}</Fact>
        <Fact name="Took">{durationOf(run)}</Fact>
        <Fact name="Attempt">
          {run.maxAttempts > 1 ? `${run.attempt} of at most ${run.maxAttempts}` : undefined}
        </Fact>
        <Fact name="Next attempt">{dueAt && <Due at={dueAt} />}</Fact>
        <Fact name="Worker">{run.worker && visible(run.worker)}</Fact>
        <Fact name="Reason">{outcome?.reason}</Fact>
        <Fact name="Retry of">
          {run.retryOf && (
            <a class="link mono" href={`/runs/${run.retryOf}`}>
              {shortRunId(run.retryOf)}
            </a>
          )}
        </Fact>
        <Fact name="Called by">{run.caller && callerWords(run.caller)}</Fact>
        <Fact name="Request">
          <span class="mono">{visible(run.requestId)}</span>
        </Fact>
        {events.map((event) => (
          <Fact key={event.receiver} name={event.receiver === 'onEnd' ? 'Event' : 'Failure event'}>
            <Delivery event={event} />
          </Fact>
        ))}
      </dl>
      <h2>
        Payload <span class="quiet">{run.payloadBytes} B</span>
      </h2>
      <Text text={payload} href={`/runs/${id}/payload`} />
      <h2>Result {result !== undefined && <span class="quiet">{outcome?.resultBytes} B</span>}</h2>
      {result === undefined ? (
        <p class="quiet">{visible(resultNote)}</p>
      ) : (
        <Text text={result} href={`/runs/${id}/result`} />
      )}
      {artifacts && <ArtifactsOf runId={id} artifacts={artifacts} />}
    </>
  );
}

/** Nothing without content. */
function Fact({ name, children }: { name: string; children?: ComponentChildren }) {
  if (children === undefined || children === '') return null;
  return (
    <>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </>
  );
}

function Due({ at }: { at: Date | 'held' }) {
  if (at === 'held') return <>{HELD}</>;
  return (
    <time dateTime={at.toISOString()} title={at.toISOString()}>
      in {formatDuration(Math.max(0, at.getTime() - Date.now()))}
    </time>
  );
}

function callerWords(caller: Caller): string {
  if ('user' in caller) return visible(`${caller.user} on ${caller.host}`);
  return visible([caller.address, caller.userAgent].filter((each) => each !== undefined).join(' · '));
}

function Delivery({ event: { status, at, tries, nextTryAt, lastError } }: { event: EventDelivery }) {
  const times = `${tries} ${tries === 1 ? 'try' : 'tries'}`;
  const error = lastError === undefined ? '' : ` ${visible(lastError)}`;
  if (status === 'waiting') {
    if (tries === 0) return <>waits to be sent</>;
    return (
      <span class="retrying">
        waits after {times}
        {nextTryAt && `, next ${nextTryAt.toISOString().slice(11, 19)} UTC`}.{error}
      </span>
    );
  }
  return (
    <span class={status === 'dropped' ? 'failed' : ''}>
      {status} {at && <Time at={at} />}, {times}
      {error && `.${error}`}
    </span>
  );
}

/** Text that somebody else wrote, cut to a size that a page can hold. */
function Text({ text, href }: { text: string; href: string }) {
  const shown = text.length > SHOWN_CHARACTERS ? text.slice(0, SHOWN_CHARACTERS) : text;
  return (
    <>
      <pre class="panel text">{visible(shown, '\n\t')}</pre>
      <p class="more">
        {shown.length < text.length && 'The beginning only. '}
        <a class="link" href={href} download>
          Download
        </a>
      </p>
    </>
  );
}

function ArtifactsOf({
  runId,
  artifacts: { artifacts, omitted, omittedCount },
}: {
  runId: string;
  artifacts: NonNullable<RunDetails['artifacts']>;
}) {
  const others = omittedCount - omitted.length;
  return (
    <>
      <h2>Artifacts</h2>
      <ul class="artifacts">
        {artifacts.map(({ name, bytes, sha256 }, index) => (
          <li key={name}>
            <a
              class="link mono"
              href={`/runs/${runId}/artifacts/${index}`}
              download
              title={`SHA-256 ${sha256}`}
            >
              {visible(name)}
            </a>{' '}
            <span class="quiet">{bytes} B</span>
          </li>
        ))}
        {omitted.map((file) => (
          <li key={file.name} class="quiet">
            not kept: {describeOmitted(file)}
          </li>
        ))}
        {others > 0 && <li class="quiet">not kept: {others} more files</li>}
      </ul>
    </>
  );
}
