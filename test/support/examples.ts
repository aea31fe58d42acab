import { type ChildProcess, spawn } from 'node:child_process';
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { expect } from 'vitest';
import { freePort } from '../../src/local/free-port.ts';
import { runOrc } from './orc.ts';
import { environment } from './orc-process.ts';
import { ROOT } from './repository.ts';

export interface AppliedExamples {
  folder: string;
  ports: { notify: number; 'disk-space': number };
}

/**
 * Copies examples/ into a folder, and applies its automations with receivers at free ports and the agent without a model.
 *
 * @param repository URL of what the agent works in
 */
export async function applyExamples(
  folder: string,
  env: NodeJS.ProcessEnv,
  repository = 'file:///nowhere',
): Promise<AppliedExamples> {
  cpSync(`${ROOT}examples`, folder, { recursive: true });
  const ports = { notify: await freePort(), 'disk-space': await freePort() };
  const file = join(folder, 'automations.yaml');
  const ready = readFileSync(file, 'utf8')
    .replaceAll('/srv/orc/examples', folder)
    .replaceAll(':8080/', `:${ports.notify}/`)
    .replaceAll(':8081/', `:${ports['disk-space']}/`)
    .replace(/agent: .*/, `agent: node ${join(folder, 'agent.mjs')}`)
    .replace('https://github.com/acme/shop.git', repository);
  writeFileSync(file, ready);
  const { code, stderr } = await runOrc(['apply', '-f', file, '--keys-dir', join(folder, 'keys')], { env });
  expect([code, stderr]).toEqual([0, '']);
  return { folder, ports };
}

export interface Receiver {
  /** Resolves with the first line, printed already or later, that contains the text. */
  line(text: string): Promise<string>;
  stop(): void;
}

/** Starts a receiver of an automation with its signing secret, and waits until it listens. */
export async function startReceiver(
  [command, file]: readonly [command: string, file: string],
  { folder, ports }: AppliedExamples,
  slug: keyof AppliedExamples['ports'],
): Promise<Receiver> {
  const ORC_SECRET = readFileSync(join(folder, 'keys', `${slug}.signing-secret`), 'utf8').trim();
  const child: ChildProcess = spawn(command, [join(folder, file)], {
    env: environment({ ORC_SECRET, PORT: `${ports[slug]}` }),
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const lines: string[] = [];
  const waiting = new Set<() => void>();
  if (!child.stdout) throw new Error('no output');
  createInterface({ input: child.stdout }).on('line', (line) => {
    lines.push(line);
    for (const look of waiting) look();
  });
  const line = (text: string) =>
    new Promise<string>((resolve, reject) => {
      const look = () => {
        const found = lines.find((each) => each.includes(text));
        if (found === undefined) return;
        waiting.delete(look);
        resolve(found);
      };
      waiting.add(look);
      child.once('exit', () => reject(new Error(`${file} has ended`)));
      look();
    });
  await line('Listening on');
  return { line, stop: () => child.kill() };
}
