import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import { howToCall } from '../../src/cli/how-to-call.ts';

const REDIS = '/home/me/.local/state/orc/x/redis.sock';
const at = (folder: string, directory: string) => howToCall(pathToFileURL(`${folder}/`), directory, REDIS);

test('npx is named only where it runs this orc, not a package of the registry', () => {
  expect(at('/src/orc', '/src/orc').here).toBe('npx orc');
  expect(at('/src/orc', '/src/orc/docs').here).toBe('npx orc');
  expect(at('/src/orc', '/src').here).toBe('/src/orc/dist/orc.js');
  expect(at('/src/orc', '/src/orc-2').here).toBe('/src/orc/dist/orc.js');
  expect(at('/app/node_modules/orc-automations', '/app/sub').here).toBe('npx orc');
  expect(at('/usr/lib/node_modules/orc-automations', '/home/me').here).toBe('orc');
});

test('an installed orc needs REDIS_URL only, a checkout the path of the command as well', () => {
  expect(at('/usr/lib/node_modules/orc-automations', '/home/me').elsewhere).toBe(`export REDIS_URL=${REDIS}`);
  expect(at('/src/orc', '/src/orc').elsewhere).toBe(`alias orc='REDIS_URL=${REDIS} /src/orc/dist/orc.js'`);
});

test('a shell understands the line, whatever is in the paths', () => {
  const folder = mkdtempSync(join(tmpdir(), "orc-it's $here "));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  mkdirSync(join(folder, 'dist'));
  const program = '#!/bin/sh\nprintf "%s " "$REDIS_URL" "$@"\n';
  writeFileSync(join(folder, 'dist/orc.js'), program, { mode: 0o755 });
  const { elsewhere } = howToCall(pathToFileURL(`${folder}/`), folder, `/a $b/"q"/it's.sock`);
  const printed = execFileSync('sh', ['-c', `${elsewhere}\norc runs list`], { encoding: 'utf8' });
  expect(printed).toBe(`/a $b/"q"/it's.sock runs list `);
});
