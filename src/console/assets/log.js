// The log of a run: follows it while the run executes, and searches and wraps it.
import { LogLines } from '../live/log-lines.ts';
import { replaceParts } from './parts.js';
import { localizeTimes, timeElement } from './time.js';

/** Lines on the page at most; of a longer log the oldest go. */
const MAX_LINES = 10_000;

/** How soon a log whose stream was refused is asked for again, and how often the figures of a run that executes are, in milliseconds. */
const AGAIN_MS = 5000;

/** The log is at its end if so little of it is below, in pixels. */
const NEAR_END = 40;

const section = document.querySelector('[data-log]');
if (section) setUp(section);

function setUp(root) {
  const box = root.querySelector('[data-log-lines]');
  for (const control of root.querySelectorAll('[data-script]')) control.hidden = false;

  const wrap = root.querySelector('[data-log-wrap]');
  wrap.addEventListener('click', () => {
    wrap.setAttribute('aria-pressed', String(!box.classList.toggle('nowrap')));
  });
  setUpSearch(root, box);
  if (root.dataset.log) follow(root, box);
}

function setUpSearch(root, box) {
  const input = root.querySelector('[data-log-search]');
  const output = root.querySelector('[data-log-hits]');
  let hits = [];
  let index = 0;
  const show = () => {
    box.querySelector('.at')?.classList.remove('at');
    hits[index]?.classList.add('at');
    if (hits[index]?.tagName === 'DETAILS') hits[index].open = true;
    hits[index]?.scrollIntoView({ block: 'center' });
    output.textContent = input.value === '' ? '' : `${hits.length === 0 ? 0 : index + 1} of ${hits.length}`;
  };
  input.addEventListener('input', () => {
    const text = input.value.toLowerCase();
    for (const line of hits) line.classList.remove('hit');
    hits =
      text === '' ? [] : [...box.children].filter((line) => line.textContent.toLowerCase().includes(text));
    for (const line of hits) line.classList.add('hit');
    index = 0;
    show();
  });
  input.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || hits.length === 0) return;
    event.preventDefault();
    index = (index + (event.shiftKey ? -1 : 1) + hits.length) % hits.length;
    show();
  });
}

function follow(root, box) {
  const run = document.querySelector('[data-run]');
  const stateWords = root.querySelector('[data-log-state]');
  const button = root.querySelector('[data-log-follow]');
  let isFollowing = true;
  const setFollowing = (value) => {
    isFollowing = value;
    button.setAttribute('aria-pressed', String(value));
    if (value) box.scrollTop = box.scrollHeight;
  };
  button.addEventListener('click', () => setFollowing(!isFollowing));
  box.addEventListener('scroll', () => {
    const isAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR_END;
    if (isAtEnd !== isFollowing) setFollowing(isAtEnd);
  });

  let line;
  let fragment = document.createDocumentFragment();
  const lines = new LogLines(
    {
      begin: ({ time, source, summary }) => {
        line = document.createElement('div');
        const outer = summary === undefined ? line : document.createElement('details');
        outer.className = `l ${source}`;
        if (summary === undefined) line.append(timeElement(time));
        else {
          const head = document.createElement('summary');
          head.append(timeElement(time), summary);
          outer.append(head, line);
        }
        fragment.append(outer);
      },
      append: (spans) => {
        for (const { text, style } of spans) {
          const span = document.createElement('span');
          span.textContent = text;
          span.className = style;
          line.append(span);
        }
      },
    },
    !root.dataset.log.endsWith('=0-0'),
  );
  let isFirst = true;
  const add = (entries) => {
    for (const [time, attempt, source, offset, data] of entries) {
      lines.add({ time, attempt, source, offset, data: bytesOf(data) });
    }
    localizeTimes(fragment);
    // The page's own lines come again, so that colours and unfinished characters go on with what follows.
    if (isFirst) box.replaceChildren(fragment);
    else box.append(fragment);
    isFirst = false;
    fragment = document.createDocumentFragment();
    while (box.childElementCount > MAX_LINES) box.firstElementChild.remove();
    if (isFollowing) box.scrollTop = box.scrollHeight;
  };

  let position;
  let source;
  const open = () => {
    const url = new URL(root.dataset.log, location.href);
    if (position) url.searchParams.set('after', position);
    source = new EventSource(url);
    source.addEventListener('log', (event) => {
      position = event.lastEventId;
      add(JSON.parse(event.data));
    });
    source.addEventListener('state', (event) => {
      if (JSON.parse(event.data).state !== run.dataset.state) replaceParts().catch(() => undefined);
    });
    source.addEventListener('end', async () => {
      close();
      clearInterval(figures);
      document.removeEventListener('visibilitychange', onVisibility);
      await replaceParts().catch(() => undefined);
      stateWords.textContent = `${box.querySelectorAll('.l').length} lines`;
      button.hidden = true;
    });
    source.onopen = () => {
      stateWords.textContent = 'live';
    };
    source.onerror = () => {
      stateWords.textContent = 'waiting for the console';
      // The browser comes back by itself, unless the answer was an error.
      if (source.readyState === EventSource.CLOSED) setTimeout(openAgain, AGAIN_MS);
    };
  };
  const openAgain = async () => {
    if (document.hidden || source.readyState !== EventSource.CLOSED) return;
    const status = await replaceParts().catch(() => undefined);
    if (status === undefined || status < 400 || status >= 500) open();
    else stateWords.textContent = 'not live: load the page again';
  };
  const figures = setInterval(() => {
    if (!document.hidden) replaceParts().catch(() => undefined);
  }, AGAIN_MS);
  const close = () => source.close();
  const onVisibility = () => {
    if (document.hidden) close();
    else open();
  };
  document.addEventListener('visibilitychange', onVisibility);
  addEventListener('pagehide', close);
  if (!document.hidden) open();
  box.scrollTop = box.scrollHeight;
}

function bytesOf(base64) {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}
