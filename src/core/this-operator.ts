import { hostname, userInfo } from 'node:os';
import type { OperatorCaller } from './run.ts';

/** The user and the machine of this process. */
export function thisOperator(): OperatorCaller {
  return { user: userName(), host: hostname() };
}

/** A container's user may have no name. */
function userName(): string {
  try {
    return userInfo().username;
  } catch {
    return `uid ${process.getuid?.()}`;
  }
}
