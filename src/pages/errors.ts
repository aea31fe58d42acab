import { ERRORS, type ErrorId, errorBody } from '../core/errors.ts';

/** The page that lists every error of the catalogue. */
export function errorsMarkdown(): string {
  const ids = Object.keys(ERRORS) as ErrorId[];
  const byStatus = ids.toSorted((a, b) => ERRORS[a].statusCode - ERRORS[b].statusCode);
  const index = byStatus.map((id) => `- ${ERRORS[id].statusCode} [\`${id}\`](#${id})`);
  return `# Errors

Every error is a JSON object with \`statusCode\`, \`error\`, \`message\` and \`hint\`. \`error\` is the identifier to program against; \`hint\` says what to do. \`429\` and \`503\` have a \`Retry-After\` header, in seconds.

${index.join('\n')}

${byStatus.map(section).join('\n\n')}
`;
}

function section(id: ErrorId): string {
  const { statusCode, cause, cure } = ERRORS[id];
  return `## ${statusCode} ${id}

**Cause.** ${cause}

**Cure.** ${cure}

\`\`\`json
${JSON.stringify(errorBody(id), null, 1).replace(/^ /gm, '  ')}
\`\`\``;
}
