import { expect, test } from 'vitest';
import { openTestConsole } from '../support/console.ts';

const { get } = openTestConsole();

test.each(['/', '/automations', '/new-automation', '/runs', '/workers', '/audit'])(
  'an operator gets %s as a page',
  async (path) => {
    const page = await get(path);
    expect(page.statusCode).toBe(200);
    expect(page.body).toMatch(/^<!doctype html><html lang="en">/);
    expect(page.body).toContain('ada (admin)');
  },
);
