// A script as an automation: fails when a disk is fuller than the payload allows, such as {"path": "/", "maxPercent": 90}.
import { readFile, statfs, writeFile } from 'node:fs/promises';

const { ORC_PAYLOAD_FILE, ORC_RESULT_FILE, ORC_ARTIFACTS_DIR } = process.env;
const { path = '/', maxPercent = 90 } = JSON.parse(await readFile(ORC_PAYLOAD_FILE, 'utf8'));

const { blocks, bavail } = await statfs(path);
const usedPercent = Math.round((1 - bavail / blocks) * 100);

await writeFile(`${ORC_ARTIFACTS_DIR}/statfs.json`, JSON.stringify({ path, blocks, bavail }));
await writeFile(ORC_RESULT_FILE, JSON.stringify({ path, usedPercent }));
if (usedPercent > maxPercent) {
  // The last line of standard error is what `orc runs list` and `orc runs show` tell.
  console.error(`${path} is ${usedPercent} % full, more than ${maxPercent} %`);
  process.exitCode = 1;
}
