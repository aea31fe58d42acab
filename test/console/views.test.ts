import { h } from 'preact';
import { expect, test } from 'vitest';
import { renderFragment } from '../../src/console/render.tsx';
import { Status } from '../../src/console/views/status.tsx';
import { Time } from '../../src/console/views/time.tsx';

test('what others wrote is text in a page, in content and in attributes', () => {
  const evil = `"><script>alert(1)</script>'&`;
  expect(renderFragment(h('a', { title: evil }, evil))).not.toMatch(/<script|title="">/);
});

test('a status has a word besides its colour', () => {
  expect(renderFragment(h(Status, { status: 'timed_out' }))).toBe(
    '<span class="pill timed_out"><i aria-hidden="true">◷</i>timed out</span>',
  );
});

test('a time is shown as its age, with the exact one for the script and on hover', () => {
  const at = new Date(Date.now() - 3 * 60_000);
  expect(renderFragment(h(Time, { at }))).toBe(
    `<time datetime="${at.toISOString()}" title="${at.toISOString()}">3 min ago</time>`,
  );
});
