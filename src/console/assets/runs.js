// The list of runs: says when there are newer ones, without moving what is being read, and takes times in the reader's zone.
import { BY_ITSELF } from './parts.js';

/** In milliseconds. */
const LOOK_MS = 5000;

/** A date, and perhaps a time, without a zone. */
const LOCAL_TIME = /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?))?$/;

for (const input of document.querySelectorAll('[name="since"], [name="until"]')) {
  input.form.addEventListener('submit', () => {
    const [, date, time = '00:00'] = LOCAL_TIME.exec(input.value.trim()) ?? [];
    const local = new Date(`${date}T${time}`);
    if (!Number.isNaN(local.getTime())) input.value = local.toISOString();
  });
}

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
