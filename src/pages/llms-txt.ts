/** `/llms.txt` in the form of llmstxt.org: a title, a summary in a quote, and sections of links. */
export function llmsTxt(origin: string): string {
  return `# orc

> orc starts pre-configured automations over HTTP. You POST a JSON object to an automation's slug with that automation's API key, and get the identifier of a run that executes asynchronously. Access is by invitation: slugs and keys come from a person in the workspace, and there is no endpoint that creates, lists or edits them.

The public HTTP API is exactly two endpoints:

- \`POST ${origin}/orc/api/automation-triggers/{slug}\` with the header \`x-api-key\` starts a run. The body is an optional JSON object with \`content-type: application/json\`. Success is \`202\` with \`{"runId": "run_…", "status": "queued"}\`.
- To retry safely, and to wait for the run: send a header \`Idempotency-Key\` with a fresh UUID, and repeat the same request with the same key. It makes no second run; the answer's \`status\` is the run's current one: \`queued\`, \`running\` or \`retrying\`, and in the end \`succeeded\`, \`failed\`, \`timed_out\` or \`cancelled\`.
- \`GET ${origin}/orc/health\` needs no key. \`200\` with \`"status": "ok"\` means that runs are accepted and executed; \`503\` means that nothing can be accepted.

Every error is JSON with \`statusCode\`, \`message\`, \`error\` (an identifier) and \`hint\` (what to do next). On \`429\` and \`503\`, wait as many seconds as \`Retry-After\` says.

## Documentation

- [How to trigger a run, and every error](${origin}/): one page; Markdown with the request header \`Accept: text/markdown\`
- [OpenAPI 3.1 description](${origin}/openapi.json): both endpoints with schemas, limits and examples
`;
}
