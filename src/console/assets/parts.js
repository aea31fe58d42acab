// Loads the page again and replaces what is marked `data-part`, except what the reader is using.
import { localizeTimes } from './time.js';

let loading;

export function replaceParts() {
  loading ??= load().finally(() => {
    loading = undefined;
  });
  return loading;
}

async function load() {
  const response = await fetch(location.href, { headers: { accept: 'text/html' } });
  if (!response.ok) return;
  const page = new DOMParser().parseFromString(await response.text(), 'text/html');
  for (const part of document.querySelectorAll('[data-part]')) {
    const other = page.querySelector(`[data-part="${part.dataset.part}"]`);
    if (!other || part.contains(document.activeElement)) continue;
    localizeTimes(other);
    part.replaceWith(document.adoptNode(other));
  }
  const run = document.querySelector('[data-state]');
  const state = page.querySelector('[data-state]')?.dataset.state;
  if (run && state !== undefined) run.dataset.state = state;
  document.title = page.title;
}
