/** What a check of `orc doctor` has found. */
export interface Finding {
  /** Names what was looked at, for people and for programs. */
  check: string;
  state: 'ok' | 'unknown' | 'warning' | 'problem';
  message: string;
  /** The one command or setting that changes it for the better. */
  cure?: string;
}

export function ok(check: string, message: string): Finding {
  return { check, state: 'ok', message };
}

/** It works, but not for long or not safely. */
export function warning(check: string, message: string, cure: string): Finding {
  return { check, state: 'warning', message, cure };
}

/** Something does not work, or runs can be lost. */
export function problem(check: string, message: string, cure: string): Finding {
  return { check, state: 'problem', message, cure };
}

export function unknown(check: string, message: string, cure: string): Finding {
  return { check, state: 'unknown', message, cure };
}
