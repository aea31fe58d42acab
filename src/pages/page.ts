/** A public page: written once in Markdown, with the origin of the service filled in. */
export interface Page {
  path: string;
  title: string;
  markdown(origin: string): string;
}
