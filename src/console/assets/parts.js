// Loads the page again and replaces what is marked `data-part`, except what the reader is using.
import { localizeTimes } from './time.js';

/** Says that no person asks, so that a page that is left open does not keep its session from ending. */
export const BY_ITSELF = { 'x-by-itself': '1' };

/** How soon a part that the reader was using is looked at again, in milliseconds. */
const RETRY_MS = 3000;

let loading;
let next;
let retry;

/**
 * What is asked for while a page is on its way gets a later one, as that one may be too old.
 *
 * @returns the status of the answer
 */
export function replaceParts() {
  if (loading) {
    next ??= loading.catch(() => undefined).then(start);
    return next;
  }
  return start();
}

function start() {
  next = undefined;
  loading = load().finally(() => {
    loading = undefined;
  });
  return loading;
}

async function load() {
  clearTimeout(retry);
  const response = await fetch(location.href, { headers: { accept: 'text/html', ...BY_ITSELF } });
  if (!response.ok) return response.status;
  const page = new DOMParser().parseFromString(await response.text(), 'text/html');
  const run = document.querySelector('[data-state]');
  const state = page.querySelector('[data-state]')?.dataset.state;
  const hasChanged = run && state !== undefined && run.dataset.state !== state;
  let isLeft = false;
  for (const part of document.querySelectorAll('[data-part]')) {
    const other = page.querySelector(`[data-part="${part.dataset.part}"]`);
    if (!other) continue;
    localizeTimes(other);
    if (part.isEqualNode(other)) continue;
    // What can be done with a run depends on its state.
    if (isUsed(part) && !hasChanged) isLeft = true;
    else replace(part, document.adoptNode(other));
  }
  if (isLeft) retry = setTimeout(() => replaceParts().catch(() => undefined), RETRY_MS);
  if (hasChanged) run.dataset.state = state;
  document.title = page.title;
  return response.status;
}

/** The keyboard stays at the link where it was. */
function replace(part, other) {
  const { activeElement } = document;
  const href = part.contains(activeElement) ? activeElement.getAttribute('href') : null;
  part.replaceWith(other);
  if (href !== null) other.querySelector(`[href="${CSS.escape(href)}"]`)?.focus({ preventScroll: true });
}

/** Whether something is typed or opened in it, or text of it is selected. */
function isUsed(part) {
  const selection = getSelection();
  const { activeElement } = document;
  const isActive = part.contains(activeElement) && activeElement.closest('input, textarea, details[open]');
  return isActive || (!selection.isCollapsed && selection.containsNode(part, true));
}
