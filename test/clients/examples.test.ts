import { expect, test } from 'vitest';
import { applyExamples, startReceiver } from '../support/examples.ts';
import { hasCommand } from '../support/machine.ts';
import { runOrc } from '../support/orc.ts';
import { startWorkerProcess } from '../support/orc-process.ts';
import { openTestStore } from '../support/store.ts';
import { openFolder } from '../worker/workbench.ts';

const folder = openFolder();
const python = hasCommand('python3');
if (!python) console.warn('SKIPPED: python3 is not on the PATH: its receiver is not tried.');

test.runIf(python)('the receiver in Python verifies a delivery, and its answer is the result', async () => {
  const store = openTestStore();
  const applied = await applyExamples(folder('examples'), store.env);
  const worker = await startWorkerProcess(store.env);
  const receiver = await startReceiver(['python3', 'receiver.py'], applied, 'notify');
  try {
    const trigger = ['trigger', 'notify', '-d', '{"hello":"receiver"}', '--wait'];
    expect((await runOrc(trigger, { env: store.env })).code).toBe(0);
    const line = await receiver.line('{"hello": "receiver"}');
    const { stdout } = await runOrc(['runs', 'result', '--last', 'notify'], { env: store.env });
    expect(JSON.parse(stdout)).toEqual({ received: line.split(' ')[0] });
    const forged = await fetch(`http://127.0.0.1:${applied.ports.notify}/`, { method: 'POST', body: '{}' });
    expect(forged.status).toBe(401);
  } finally {
    receiver.stop();
    await worker.stop();
  }
});
