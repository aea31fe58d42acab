import { InputError } from './input-error.ts';

/** A viewer reads everything but secrets; an admin changes everything, and so executes code on the workers. */
export const OPERATOR_ROLES = ['viewer', 'admin'] as const;
export type OperatorRole = (typeof OPERATOR_ROLES)[number];

/** A person who may open the console. */
export interface Operator {
  name: string;
  role: OperatorRole;
}

/** The names that single sign-on proxies tell, among them addresses of e-mail. */
const OPERATOR_NAME = /^[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}$/;

export function isOperatorName(text: string): boolean {
  return OPERATOR_NAME.test(text);
}

/** @throws InputError unless the text can be an operator's name */
export function parseOperatorName(text: string): string {
  if (isOperatorName(text)) return text;
  throw new InputError(
    "An operator's name has 1 to 128 letters, digits and . _ @ + -, and begins with a letter or a digit, such as alice or alice@example.com.",
  );
}
