// Pages that show how things are now: loaded again and again while they are looked at.
import { replaceParts } from './parts.js';

/** In milliseconds. */
const PAUSE_MS = 5000;

const words = document.querySelector('[data-refresh]');
if (words) {
  setInterval(() => void refresh(), PAUSE_MS);
  document.addEventListener('visibilitychange', () => void refresh());
  words.textContent = 'live';
}

async function refresh() {
  if (document.hidden) return;
  const status = await replaceParts().catch(() => undefined);
  if (status === undefined || status >= 500) words.textContent = 'waiting for the console';
  else words.textContent = status < 400 ? 'live' : 'not live: load the page again';
}
