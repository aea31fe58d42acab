/** A curl command that starts a run when it is pasted into a shell. */
export function curlLine(origin: string, slug: string, apiKey: string, payload = '{}'): string {
  return `curl -X POST ${origin}/orc/api/automation-triggers/${slug} -H 'x-api-key: ${apiKey}' -H 'content-type: application/json' -d '${payload}'`;
}
