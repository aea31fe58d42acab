import type { ComponentChildren } from 'preact';
import type { Automation } from '../../core/automation.ts';
import { isSigned } from '../../core/automation.ts';
import { visible } from '../../core/visible-text.ts';
import { automationState, type Fact } from '../../ops/automation-facts.ts';
import type { RecentRun } from '../../store/recent-runs.ts';
import { acceptedAtOf } from '../../store/run-id.ts';
import { countOf, formatCount } from './count.ts';
import { State } from './state.tsx';
import { LinkedStrip } from './strip.tsx';
import { Time } from './time.tsx';

/** Facts that the top of the page says already. */
const ON_TOP = ['slug', 'name', 'state'];

const ISO_TIME = /^\d{4}-\d{2}-\d{2}T[\d:.]+Z$/;

/** Runs in its strip. */
export const LONG_STRIP = 40;

export interface AutomationProps {
  automation: Automation;
  /** Tells what the page shows from what comes later. */
  seen: string;
  facts: readonly Fact[];
  recent: readonly RecentRun[];
  /** In the last hour. */
  failed: number;
  open: number;
  isAdmin: boolean;
  /** What is wrong with the form "Run now" or "Delete" that was sent, and what was typed into it. */
  sent?:
    | { form: 'run' | 'delete' | 'rotate-key' | 'rotate-secret'; problem: string; text: string }
    | undefined;
}

export function AutomationView({
  automation,
  seen,
  facts,
  recent,
  failed,
  open,
  isAdmin,
  sent,
}: AutomationProps) {
  const { slug, name } = automation;
  const newest = recent.at(-1);
  return (
    <>
      <h1>
        {slug} <State state={automationState(automation)} />
        {isAdmin && (
          <span class="push">
            <a class="btn" href={`/automations/${slug}/yaml`}>
              As YAML
            </a>
            <a class="btn" href={`/automations/${slug}/edit`}>
              Edit
            </a>
          </span>
        )}
      </h1>
      {name !== '' && <p>{visible(name)}</p>}
      <h2>Runs</h2>
      {newest ? (
        <>
          <LinkedStrip runs={recent} />
          <p class="quiet">
            The last {countOf(recent.length, 'run')}, the newest at the right,{' '}
            <Time at={acceptedAtOf(newest.id)} />;{' '}
            {failed > 0 ? (
              <a class="failed" href={`/runs?automation=${slug}&status=any-failure&since=1h`}>
                {formatCount(failed)} failed in the last hour
              </a>
            ) : (
              'none failed in the last hour'
            )}
            ; {open === 0 ? 'none is under way' : `${formatCount(open)} have not ended`}.{' '}
            <a class="link" href={`/runs?automation=${slug}`}>
              All its runs
            </a>
          </p>
        </>
      ) : (
        <p class="quiet">
          It has no runs yet. {isAdmin ? 'Choose “Run now”, or' : 'Callers'} start one over HTTP with its key.
        </p>
      )}
      {isAdmin && automation.enabled && <RunNow slug={slug} sent={sent?.form === 'run' ? sent : undefined} />}
      <h2>Settings</h2>
      <dl class="facts">
        {facts.map(([label, text], index) =>
          text === undefined || ON_TOP.includes(label) ? null : (
            <>
              <dt key={index}>{label}</dt>
              <dd>{ISO_TIME.test(text) ? <Time at={new Date(text)} /> : visible(text)}</dd>
            </>
          ),
        )}
      </dl>
      {isAdmin && <Changes automation={automation} seen={seen} open={open} sent={sent} />}
    </>
  );
}

function RunNow({ slug, sent }: { slug: string; sent: AutomationProps['sent'] }) {
  return (
    <details class="act" open={sent !== undefined}>
      <summary>Run now</summary>
      <form method="post" action={`/automations/${slug}/run`}>
        <p>Starts a run at once, with you as its caller. It counts for concurrency and not for the rate.</p>
        <div class="field code">
          <label for="payload">Payload</label>
          <textarea
            id="payload"
            name="payload"
            rows={5}
            spellcheck={false}
            value={sent?.text ?? '{}'}
            {...invalid(sent)}
          />
          <span class="hint">A JSON object. It reaches the run as it is typed.</span>
          <Problem sent={sent} />
        </div>
        <button class="btn main" type="submit">
          Start the run
        </button>
      </form>
    </details>
  );
}

function Changes({
  automation,
  seen,
  open,
  sent,
}: {
  automation: Automation;
  seen: string;
  open: number;
  sent: AutomationProps['sent'];
}) {
  const { slug, enabled, pausedAt } = automation;
  return (
    <>
      <h2>Change</h2>
      {pausedAt ? (
        <Act path={`${slug}/resume`} title="Resume" button="Resume it">
          Its runs start again, in the order in which they were accepted: {formatCount(open)} have not ended.
        </Act>
      ) : (
        <Act path={`${slug}/pause`} title="Pause" button="Pause it">
          Triggers are still accepted, but no run starts until it is resumed. What executes goes on.
        </Act>
      )}
      {enabled ? (
        <Act path={`${slug}/disable`} title="Disable" button="Disable it" isBad>
          Triggers are rejected with 403, and the runs that wait are cancelled: {formatCount(open)} have not
          ended. What executes goes on.
        </Act>
      ) : (
        <Act path={`${slug}/enable`} title="Enable" button="Enable it">
          Triggers are accepted again.
        </Act>
      )}
      <Act
        path={`${slug}/rotate-key`}
        title="Issue a new key"
        button="Issue a new key"
        isOpen={sent?.form === 'rotate-key'}
      >
        The new key is shown once. The old one stays valid for a while, so that callers can change over.
        <Grace name="rotate-key" seen={seen} sent={sent} />
      </Act>
      {isSigned(automation) && (
        <Act
          path={`${slug}/rotate-secret`}
          title="Issue a new signing secret"
          button="Issue a new signing secret"
          isOpen={sent?.form === 'rotate-secret'}
        >
          The new secret is shown once. For a while, what is sent is signed with the old one, too, so that
          receivers can change over.
          <Grace name="rotate-secret" seen={seen} sent={sent} />
        </Act>
      )}
      <Act
        path={`${slug}/delete`}
        title="Delete"
        button="Delete it for ever"
        isBad
        isOpen={sent?.form === 'delete'}
      >
        Its key becomes invalid, its events that wait are dropped, and its waiting runs are not executed. Its
        runs stay readable. This cannot be undone; “As YAML” keeps a copy of its settings.
        <span class="field code">
          <label for="confirm">Type {slug} to delete it</label>
          <input
            id="confirm"
            name="slug"
            class="short"
            autocomplete="off"
            autocapitalize="none"
            spellcheck={false}
            required
            {...invalid(sent?.form === 'delete' ? sent : undefined)}
          />
          <Problem sent={sent?.form === 'delete' ? sent : undefined} />
        </span>
      </Act>
    </>
  );
}

interface ActProps {
  /** Behind `/automations/`. */
  path: string;
  title: string;
  /** What is written on the button. */
  button: string;
  isBad?: boolean;
  isOpen?: boolean;
  /** What will happen. */
  children: ComponentChildren;
}

/** Something to do, with what will happen before it does. */
function Act({ path, title, button, isBad = false, isOpen = false, children }: ActProps) {
  return (
    <details class={isBad ? 'act bad' : 'act'} open={isOpen}>
      <summary>{title}</summary>
      <form method="post" action={`/automations/${path}`}>
        <div class="field">{children}</div>
        <button class={isBad ? 'btn bad' : 'btn'} type="submit">
          {button}
        </button>
      </form>
    </details>
  );
}

interface GraceProps {
  name: 'rotate-key' | 'rotate-secret';
  seen: string;
  sent: AutomationProps['sent'];
}

function Grace({ name, seen, sent }: GraceProps) {
  const own = sent?.form === name ? sent : undefined;
  return (
    <span class="field">
      <input type="hidden" name="seen" value={seen} />
      <label for={`grace-${name}`}>The old one stays for</label>
      <input id={`grace-${name}`} name="grace" class="short" value={own?.text ?? '24h'} {...invalid(own)} />
      <span class="hint">Such as 1h or 7d; 0 ends it at once.</span>
      <Problem sent={own} />
    </span>
  );
}

function Problem({ sent }: { sent: AutomationProps['sent'] }) {
  if (!sent) return null;
  return (
    <span class="wrong" id="sent-problem" role="alert">
      {sent.problem}
    </span>
  );
}

function invalid(sent: AutomationProps['sent']) {
  return sent ? { 'aria-invalid': 'true' as const, 'aria-describedby': 'sent-problem' } : {};
}

/** An automation as a file for `orc apply`. */
export function AutomationYaml({ slug, yaml }: { slug: string; yaml: string }) {
  return (
    <>
      <h1>{slug} as YAML</h1>
      <p class="warning">
        For <code>orc apply -f</code>. It has no API keys and no signing secrets, but the values of its
        variables: protect the file accordingly.
      </p>
      <pre class="term" id="yaml">
        {yaml}
      </pre>
      <p class="actions">
        <button class="btn" type="button" data-copy="yaml" hidden>
          Copy
        </button>
        <a class="btn" href={`/automations/${slug}`}>
          Back to {slug}
        </a>
      </p>
    </>
  );
}
