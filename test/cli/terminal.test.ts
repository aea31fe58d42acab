import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { PassThrough } from 'node:stream';
import { buffer, text } from 'node:stream/consumers';
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest';
import { formatRecord } from '../../src/cli/local-console.ts';
import { createOutput, type Output } from '../../src/cli/output.ts';
import { hasCommand } from '../support/machine.ts';
import { runOrc } from '../support/orc.ts';
import { ORC, type OrcProcess, startWorkerProcess } from '../support/orc-process.ts';
import { command, createAutomation, openTestStore } from '../support/store.ts';
import { acceptRuns, eventually } from '../worker/workbench.ts';

/** What would make a terminal do something, and the way it is shown. */
const HOSTILE = [
  ['sets the title', '\u001b]0;owned\u0007', '\\u001b]0;owned\\u0007'],
  ['clears the screen', '\u001b[2J\u001b[H', '\\u001b[2J\\u001b[H'],
  ['clears the screen in one byte less', '\u009b2J', '\\u009b2J'],
  ['writes over the line', 'failed\rsucceeded', 'failed\\rsucceeded'],
  ['deletes letters', 'a\b\u007f', 'a\\u0008\\u007f'],
  ['reverses the letters that follow', '\u202egpj.exe\u2066', '\\u202egpj.exe\\u2066'],
  ['hides what it says', 'a\u200bb\u00ad\u{e0041}\u2028', 'a\\u200bb\\u00ad\\udb40\\udc41\\u2028'],
  ['colours what is not its own', '\u001b[31mred', '\\u001b[31mred'],
] as const;
const ALL = HOSTILE.map(([, sent]) => sent).join(' ');
const ALL_SHOWN = HOSTILE.map(([, , shown]) => shown).join(' ');

/** What a terminal acts upon, apart from the lines and the tabs. */
const ACTED_UPON = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u;

const COLOUR = new RegExp(`${'\u001b'}\\[\\d+m`, 'g');
const withoutColours = (shown: string) => shown.replace(COLOUR, '');

/** An output to two streams, and what has come out of both. */
function open(isTTY: boolean): { output: Output; printed(): Promise<string> } {
  const stream = Object.assign(new PassThrough(), { isTTY }) as unknown as NodeJS.WriteStream & PassThrough;
  return {
    output: createOutput(stream, stream, false),
    printed: async () => {
      stream.end();
      return text(stream);
    },
  };
}

test.each(HOSTILE)('what %s is shown on a terminal, and a pipe gets it', async (_, sent, shown) => {
  const print = async (isTTY: boolean) => {
    const { output, printed } = open(isTTY);
    output.line(sent);
    output.out(`${sent}\n`);
    output.err(`orc: ${sent}\n`);
    return printed();
  };
  expect(await print(true)).toBe(`${shown}\n${shown}\norc: ${shown}\n`);
  expect(await print(false)).toBe(`${sent}\n${sent}\norc: ${sent}\n`);
});

test('one line stays one line on a terminal, and letters of all languages stay letters', async () => {
  const { output, printed } = open(true);
  output.line('name\n✔ deploy succeeded\tin 1 s');
  output.line('naïve 日本語 שלום مرحبا می‌خواهم 👩‍👧 ❤️');
  expect(await printed()).toBe(
    'name\\n✔ deploy succeeded\\tin 1 s\nnaïve 日本語 שלום مرحبا می‌خواهم 👩‍👧 ❤️\n',
  );
});

test('JSON on a terminal is the same value without a character that it acts upon', async () => {
  const { output, printed } = open(true);
  output.json({ name: ALL });
  const shown = await printed();
  expect(JSON.parse(shown)).toEqual({ name: ALL });
  expect(shown.replaceAll('\n', '')).not.toMatch(ACTED_UPON);
});

test('own styles reach a terminal and no pipe, and what is styled cannot end them', async () => {
  vi.stubEnv('FORCE_COLOR', '1');
  vi.stubEnv('NO_COLOR', undefined);
  onTestFinished(() => void vi.unstubAllEnvs());
  const terminal = open(true);
  terminal.output.line(terminal.output.style('bold', 'a\u001b[22m'));
  expect(await terminal.printed()).toBe('\u001b[1ma\\u001b[22m\u001b[22m\n');
  const pipe = open(false);
  pipe.output.line(pipe.output.style('bold', 'a'));
  expect(await pipe.printed()).toBe('a\n');
});

test('the line of an ended run in orc local shows what the run, its automation and a request name', async () => {
  const { output, printed } = open(true);
  const record = {
    level: 'info',
    time: '2026-01-02T03:04:05.678Z',
    automation: 'a',
    runId: 'run_1',
    durationMs: 5,
  };
  const lines = [
    formatRecord({ ...record, msg: 'run ended', status: 'succeeded' }, ALL, output),
    formatRecord({ ...record, msg: 'run ended', status: 'failed', message: ALL }, undefined, output),
    formatRecord({ ...record, msg: 'run ended', status: 'failed', detail: ALL }, undefined, output),
    formatRecord({ ...record, msg: 'run retries', message: ALL }, undefined, output),
    formatRecord({ ...record, msg: 'request', path: ALL, error: 'not_found' }, undefined, output),
    formatRecord({ ...record, level: 'warn', msg: 'x', err: { message: ALL } }, undefined, output),
  ];
  for (const line of lines) output.line(line);
  const shown = withoutColours(await printed());
  expect(shown.split(ALL_SHOWN)).toHaveLength(lines.length + 1);
  expect(shown.replaceAll('\n', '')).not.toMatch(ACTED_UPON);
});

test('orc local shows the time of this machine, and why a run was interrupted', () => {
  const { output } = open(false);
  const time = new Date(2026, 0, 2, 9, 38, 56).toISOString();
  const record = {
    level: 'warn',
    time,
    automation: 'deploy',
    runId: 'run_1',
    attempt: 2,
    reason: 'shutting down',
  };
  expect(formatRecord({ ...record, msg: 'run interrupted' }, undefined, output)).toBe(
    '09:38:56 ! deploy was interrupted in attempt 2: shutting down  run_1',
  );
});

function program(isTTY: boolean, ...chunks: (string | Buffer)[]): Promise<string> {
  const { output, printed } = open(isTTY);
  const { write, end } = output.programOutput('out');
  for (const chunk of chunks) write(Buffer.from(chunk));
  end();
  return printed();
}

test('what a program printed keeps its lines and colours, and nothing else, wherever it is cut', async () => {
  const red = '\u001b[1;31mred\u001b[0m é\r\n\tplain\n';
  const shown = '\u001b[1;31mred\u001b[0m é\n\tplain\n';
  const bytes = Buffer.from(red);
  for (let at = 0; at <= bytes.length; at += 1) {
    const printed = await program(true, bytes.subarray(0, at), bytes.subarray(at));
    // A colour ends with its chunk.
    expect([at, printed.replace('\u001b[0m', '').replace('\u001b[0m', '')]).toEqual([
      at,
      shown.replace('\u001b[0m', ''),
    ]);
  }
  for (const [, sent, each] of HOSTILE.slice(0, -1)) {
    const whole = Buffer.from(sent);
    for (let at = 0; at <= whole.length; at += 1) {
      expect(await program(true, whole.subarray(0, at), whole.subarray(at))).toBe(each);
    }
    expect(await program(false, sent)).toBe(sent);
  }
});

test.each([
  ['conceals', '\u001b[8m'],
  ['has the colour of a background', '\u001b[30m'],
  ['colours the background', '\u001b[41m'],
  ['hides among colours', '\u001b[31;8m'],
  ['has any colour at all', '\u001b[38;2;0;0;0m'],
])('a rendition that %s is shown', async (_, sent) => {
  expect(await program(true, `${sent}text`)).toBe(`\\u001b${sent.slice(1)}text`);
});

test('a colour that a program does not end, ends with it', async () => {
  expect(await program(true, '\u001b[31mred')).toBe('\u001b[31mred\u001b[0m');
});

const store = openTestStore();
let worker: OrcProcess;
beforeAll(async () => {
  worker = await startWorkerProcess(store.env);
});
afterAll(async () => {
  await worker.stop();
});

/** What a terminal gets of a command; `script` is one to it. */
async function onTerminal(...args: string[]): Promise<string> {
  const line = [process.execPath, ORC, ...args].join(' ');
  const child = spawn('script', ['--quiet', '--return', '--command', line, '/dev/null'], {
    env: { PATH: process.env['PATH'], TERM: 'dumb', NO_COLOR: '1', ...store.env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  // The terminal itself begins each line anew.
  return (await text(child.stdout)).replaceAll('\r\n', '\n');
}

async function logOf(slug: string, action: Parameters<typeof acceptRuns>[2]): Promise<string> {
  const [runId = ''] = await acceptRuns(store, slug, action);
  await eventually(async () => (await store.runs.get(runId))?.endedAt).toBeInstanceOf(Date);
  return runId;
}

test.runIf(process.platform === 'linux' && hasCommand('script'))(
  'a terminal is sent nothing that it acts upon by lists, show, runs logs and errors; pipes get the bytes',
  async () => {
    const name = `${ALL}\n✔ spoofed`;
    await createAutomation(store, 'hostile', { name });
    const octal = [...Buffer.from(ALL)].map((byte) => `\\${byte.toString(8).padStart(3, '0')}`);
    const runId = await logOf('printer', { action: command('printf', octal.join('')) });
    const commands = [
      ['automations', 'list'],
      ['automations', 'list', '--json'],
      ['automations', 'show', 'hostile'],
      ['export'],
      ['runs', 'logs', runId],
      ['runs', 'logs', runId, '--json'],
    ];
    for (const args of commands) {
      const shown = await onTerminal(...args);
      expect([args, shown]).toEqual([args, expect.stringContaining(']0;owned')]);
      // A run may choose its own colour.
      expect([args, withoutColours(shown).replace(/[\n\t]/g, '')]).toEqual([
        args,
        expect.not.stringMatching(ACTED_UPON),
      ]);
    }
    expect(await onTerminal('runs', 'show', "$(printf '\\033[2J')")).not.toContain('\u001b');
    expect(await onTerminal('runs', "$(printf '\\033[2J')")).not.toContain('\u001b');
    const piped = await runOrc(['automations', 'list'], { env: store.env });
    expect(piped.stdout).toContain(name);
    expect((await runOrc(['runs', 'logs', runId], { env: store.env })).stdout).toBe(ALL);
  },
);

test.runIf(process.platform === 'linux' && hasCommand('script'))(
  "a receiver's status line and headers are shown on a terminal",
  async () => {
    const receiver = createServer((socket) => {
      socket.on('error', () => undefined);
      socket.once('data', () => {
        socket.end(
          Buffer.from('HTTP/1.1 200 O\u009b2JK\r\nx-name: \u009b2J\r\ncontent-length: 0\r\n\r\n', 'latin1'),
        );
      });
    });
    receiver.listen(0, '127.0.0.1');
    await once(receiver, 'listening');
    onTestFinished(() => void receiver.close());
    const { port } = receiver.address() as AddressInfo;
    const url = `http://127.0.0.1:${port}`;
    const runId = await logOf('receiver', { action: { type: 'http', url } });
    const shown = await onTerminal('runs', 'logs', runId);
    expect(shown).toContain('orc: HTTP 200 O\\u009b2JK\n');
    expect(shown).toContain('orc: x-name: \\u009b2J\n');
    const child = spawn(process.execPath, [ORC, 'runs', 'logs', runId], { env: store.env });
    const [, piped] = await Promise.all([buffer(child.stdout), text(child.stderr)]);
    expect(piped).toContain('orc: HTTP 200 O\u009b2JK\n');
  },
);
