/** The result of one check of `orc doctor`. */
export interface Finding {
  /** Name of the check, for people and programs. */
  check: string;
  state: 'ok' | 'unknown' | 'warning' | 'problem';
  message: string;
  /** The command or setting that resolves it. */
  cure?: string;
}

export function ok(check: string, message: string): Finding {
  return { check, state: 'ok', message };
}

/** Works, but not for long or not safely. */
export function warning(check: string, message: string, cure: string): Finding {
  return { check, state: 'warning', message, cure };
}

/** Does not work, or can lose runs. */
export function problem(check: string, message: string, cure: string): Finding {
  return { check, state: 'problem', message, cure };
}

export function unknown(check: string, message: string, cure: string): Finding {
  return { check, state: 'unknown', message, cure };
}
