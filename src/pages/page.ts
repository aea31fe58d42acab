/** A public page in Markdown; {@link BASE_URL} stands for the origin of the service. */
export interface Page {
  path: string;
  /** Path of the same page that is always Markdown. */
  twin: string;
  title: string;
  /** One sentence, for search engines and llms.txt. */
  description: string;
  markdown: string;
}

/** Stands for the origin of the service, which only a request tells; a reserved name (RFC 2606, section 2). */
export const BASE_URL = 'https://base-url.invalid';
