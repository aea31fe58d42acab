import { ERRORS } from '../core/errors.ts';
import type { Page } from './page.ts';

const errorRows = Object.entries(ERRORS)
  .map(([id, { statusCode, message, hint }]) => `| \`${id}\` | ${statusCode} | ${message} | ${hint} |`)
  .join('\n');

export const homePage: Page = {
  path: '/',
  title: 'orc: start an automation with one HTTP request',
  markdown: (origin) => `# orc

Send one HTTP request, and a run of your automation starts: a script, an agent's command line, or a delivery to a URL.
Access is by invitation. Automations and their keys are created inside a workspace.

## Trigger a run

\`\`\`sh
curl -X POST ${origin}/orc/api/automation-triggers/YOUR-SLUG \\
  -H 'x-api-key: YOUR-KEY' \\
  -H 'content-type: application/json' \\
  -d '{"any":"JSON object"}'
\`\`\`

The answer is \`202\` with the run's identifier and status. The run goes on after it:

\`\`\`json
{"runId":"run_0195a2c4-7b1e-7f3a-9c5d-2e8f4a6b1c3d","status":"queued"}
\`\`\`

The body is optional. It reaches the run byte for byte.

## Repeat safely, and wait for the run

Send an \`Idempotency-Key\` of your choice, a new one for every run you want. For 24 hours, the same request with the same
key makes no second run: it is answered with the run of the first one and the status it has by then. So repeat the request
after a timeout, and repeat it to wait for the run to end:

\`\`\`sh
run=$(uuidgen)
while answer=$(curl -sS --fail-with-body --retry 5 -X POST "${origin}/orc/api/automation-triggers/YOUR-SLUG" \\
    -H "x-api-key: $ORC_KEY" -H "Idempotency-Key: $run" -H 'content-type: application/json' -d '{"ref":"main"}'); do
  case $answer in
    *'"succeeded"'*) exit 0 ;;
    *'"queued"'* | *'"running"'* | *'"retrying"'*) sleep 2 ;;
    *) break ;;
  esac
done
echo "$answer" >&2; exit 1
\`\`\`

\`succeeded\`, \`failed\`, \`timed_out\` and \`cancelled\` are final; \`queued\`, \`running\` and \`retrying\` are not.

## Check that the service is up

\`\`\`sh
curl ${origin}/orc/health
\`\`\`

\`200\` means that runs are accepted. \`"status":"degraded"\` in it means that they wait, because no worker is alive.
Any other status means that nothing can be accepted at the moment.

## Errors

Every error is a JSON object with \`statusCode\`, \`error\`, \`message\` and a \`hint\` that says what to do next.

| error | status | meaning | what to do |
| --- | --- | --- | --- |
${errorRows}

## For programs

- [OpenAPI 3.1 description](${origin}/openapi.json) of the two endpoints
- [llms.txt](${origin}/llms.txt), an overview for AI agents
- This page as Markdown: send \`Accept: text/markdown\`
`,
};
