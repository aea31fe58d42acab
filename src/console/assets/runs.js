// The list of runs: says when there are newer ones, without moving what is being read.
import { BY_ITSELF } from './parts.js';

/** In milliseconds. */
const LOOK_MS = 5000;

const newer = document.querySelector('[data-newer]');
if (newer) setInterval(() => void look(newer), LOOK_MS);

async function look(element) {
  if (document.hidden) return;
  const url = new URL(element.dataset.newer, location.href);
  url.searchParams.set('newest', element.dataset.newest);
  const response = await fetch(url, { headers: BY_ITSELF }).catch(() => undefined);
  if (!response?.ok) return;
  const { count, atLeast } = await response.json();
  const link = element.querySelector('a');
  link.hidden = count === 0;
  const text = `${count < atLeast ? count : `${atLeast} or more`} new ${count === 1 ? 'run' : 'runs'}`;
  if (link.textContent !== text) link.textContent = text;
}
