import { type Browser, chromium } from 'playwright-core';
import { type DebianProgram, findDebianProgram } from './debian-program.ts';

/** Chromium of this machine, or unpacked from Debian's packages; undefined where there is none of either. */
export function findChromium(): Promise<DebianProgram | undefined> {
  return findDebianProgram({
    names: ['chromium', 'chromium-browser', 'google-chrome'],
    packages: ['chromium', 'fonts-dejavu-core'],
    path: 'usr/lib/chromium/chromium',
  });
}

/** Starts it; who starts it closes it. The name `orc.test` stands for a server that is not this machine. */
export function launchChromium({ command, env }: DebianProgram): Promise<Browser> {
  return chromium.launch({
    executablePath: command,
    env: { ...env } as Record<string, string>,
    // Containers give the sandbox nothing to work with.
    args: ['--no-sandbox', '--disable-dev-shm-usage', '--host-resolver-rules=MAP orc.test 127.0.0.1'],
  });
}
