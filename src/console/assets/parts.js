// Loads the page again and replaces what is marked `data-part`, except what the reader is using.
import { localizeTimes } from './time.js';

/** Says that no person asks, so that a page that is left open does not keep its session from ending. */
export const BY_ITSELF = { 'x-by-itself': '1' };

let loading;

/** @returns the status of the answer */
export function replaceParts() {
  loading ??= load().finally(() => {
    loading = undefined;
  });
  return loading;
}

async function load() {
  const response = await fetch(location.href, { headers: { accept: 'text/html', ...BY_ITSELF } });
  if (!response.ok) return response.status;
  const page = new DOMParser().parseFromString(await response.text(), 'text/html');
  for (const part of document.querySelectorAll('[data-part]')) {
    const other = page.querySelector(`[data-part="${part.dataset.part}"]`);
    if (!other || isUsed(part)) continue;
    localizeTimes(other);
    if (!part.isEqualNode(other)) part.replaceWith(document.adoptNode(other));
  }
  const run = document.querySelector('[data-state]');
  const state = page.querySelector('[data-state]')?.dataset.state;
  if (run && state !== undefined) run.dataset.state = state;
  document.title = page.title;
  return response.status;
}

/** Whether the keyboard is in it, or text of it is selected. */
function isUsed(part) {
  const selection = getSelection();
  return (
    part.contains(document.activeElement) || (!selection.isCollapsed && selection.containsNode(part, true))
  );
}
