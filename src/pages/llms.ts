import { BASE_URL, type Page } from './page.ts';

/** `/llms.txt` in the form of llmstxt.org: a title, a summary in a quote, details, and sections of links. */
export function llmsTxt(pages: readonly Page[]): string {
  return `# orc

> orc starts pre-configured automations over HTTP. You POST a JSON object to an automation's slug with that automation's API key, and get the identifier of a run that executes asynchronously. Access is by invitation: a person in the workspace gives you slugs and keys. No endpoint creates, lists or shows them.

The public HTTP API is exactly two endpoints:

- \`POST ${BASE_URL}/orc/api/automation-triggers/{slug}\` with the header \`x-api-key\` starts a run. The body is an optional JSON object with \`content-type: application/json\`. Success is \`202\` with \`{"runId": "run_…", "status": "queued"}\`.
- To retry safely and to wait for the run, send an \`Idempotency-Key\` header with a new UUID, and repeat the same request with the same key. It starts no second run. The \`status\` in the answer is the current one: \`queued\`, \`running\` or \`retrying\`, and finally \`succeeded\`, \`failed\`, \`timed_out\` or \`cancelled\`.
- To learn how the run ended and what came out, add the header \`Prefer: return=representation\` to these requests. Once the run has ended, the answer also has \`outcome\` (\`reason\`, \`message\`, and \`exitCode\` or \`httpStatus\`) and, if the automation gave one, \`result\`, a JSON object. Parse the JSON; do not search it for words.
- \`GET ${BASE_URL}/orc/health\` needs no key. \`200\` with \`"status": "ok"\` means that runs are accepted and executed; \`503\` means that nothing can be accepted.

Every error is JSON with \`statusCode\`, \`message\`, \`error\` (an identifier) and \`hint\` (what to do next). After \`429\` and \`503\`, wait for \`Retry-After\` seconds.

## Documentation

${pages.map(({ title, twin, description }) => `- [${title}](${BASE_URL}${twin}): ${description}`).join('\n')}

## API

- [OpenAPI 3.1 description](${BASE_URL}/openapi.json): both endpoints with schemas, limits and examples

## Optional

- [Everything in one file](${BASE_URL}/llms-full.txt): all pages above in a single request
`;
}

/** `/llms-full.txt`: every page as Markdown, each after its URL. */
export function llmsFullTxt(pages: readonly Page[]): string {
  return pages.map(({ path, markdown }) => `<!-- ${BASE_URL}${path} -->\n\n${markdown}`).join('\n');
}
