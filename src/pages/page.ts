/** A public page, written once in Markdown; {@link BASE_URL} stands in it for the origin of the service. */
export interface Page {
  path: string;
  /** Where the same page is Markdown for whoever asks. */
  twin: string;
  title: string;
  /** One sentence, for search engines and llms.txt. */
  description: string;
  markdown: string;
}

/** Stands for the origin of the service, which is not known before a request comes in (RFC 2606, section 2). */
export const BASE_URL = 'https://base-url.invalid';
