/** What a person is told instead of a page. Routes throw it. */
export class ConsoleError extends Error {
  override name = 'ConsoleError';
  readonly statusCode: number;
  readonly title: string;
  /** What to do next: one sentence, or a command to copy. */
  readonly cure: Cure | undefined;
  readonly headers: Readonly<Record<string, string>>;

  /**
   * @param title what is wrong, in a few words
   * @param message in one or two sentences
   */
  constructor(
    statusCode: number,
    title: string,
    message: string,
    { cure, headers = {}, cause }: { cure?: Cure; headers?: Record<string, string>; cause?: unknown } = {},
  ) {
    super(message, { cause });
    this.statusCode = statusCode;
    this.title = title;
    this.cure = cure;
    this.headers = headers;
  }
}

export interface Cure {
  text: string;
  /** A line for a shell. */
  command?: string;
}

/** @param what such as `run` */
export function notFound(what: string, message: string): ConsoleError {
  return new ConsoleError(404, `No such ${what}`, message);
}
