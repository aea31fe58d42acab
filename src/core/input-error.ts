/** What a person has typed, on the command line or into a form, cannot be understood. The message says what to type instead. */
export class InputError extends Error {
  override name = 'InputError';
}
