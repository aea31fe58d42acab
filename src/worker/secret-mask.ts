/** Shorter values are no secrets: they would be found everywhere. */
const SHORTEST_SECRET = 8;

const MASK = '***';

/** Hides values in what others print. Of a value with several lines, each line is hidden. */
export class SecretMask {
  readonly #secrets: readonly Buffer[];

  constructor(values: readonly string[]) {
    const lines = values.flatMap((value) => value.split(/\r?\n/));
    const secrets = new Set(lines.filter(({ length }) => length >= SHORTEST_SECRET));
    this.#secrets = [...secrets].map((secret) => Buffer.from(secret));
  }

  text(text: string): string {
    const stream = this.stream();
    return Buffer.concat([stream.write(Buffer.from(text)), stream.end()]).toString();
  }

  /** For what comes in pieces. */
  stream(): MaskedStream {
    return new MaskedStream(this.#secrets);
  }
}

/** Hides values that may be spread over several pieces. What may be the beginning of one is held back. */
export class MaskedStream {
  readonly #secrets: readonly Buffer[];
  #held = Buffer.alloc(0);
  /** How much of the beginning of what is held belongs to a value for which the mask is written already, in bytes. */
  #maskedBytes = 0;

  constructor(secrets: readonly Buffer[]) {
    this.#secrets = secrets;
  }

  /** @returns what is certain by now */
  write(data: Buffer): Buffer {
    if (this.#secrets.length === 0) return data;
    const all = this.#held.length === 0 ? data : Buffer.concat([this.#held, data]);
    const heldAt = Math.min(...this.#secrets.map((secret) => beginningAtEnd(all, secret)));
    const parts: Buffer[] = [];
    let at = this.#maskedBytes;
    for (const [start, end] of this.#places(all)) {
      if (start >= heldAt) break;
      // Two values that overlap get one mask.
      if (start >= at) parts.push(all.subarray(at, start), Buffer.from(MASK));
      at = Math.max(at, end);
    }
    if (at < heldAt) parts.push(all.subarray(at, heldAt));
    this.#held = Buffer.from(all.subarray(heldAt));
    this.#maskedBytes = Math.max(at - heldAt, 0);
    return Buffer.concat(parts);
  }

  /** @returns the rest; a beginning that is long enough to be a secret is hidden as well */
  end(): Buffer {
    const rest = this.#held.subarray(this.#maskedBytes);
    this.#held = Buffer.alloc(0);
    this.#maskedBytes = 0;
    return rest.length < SHORTEST_SECRET ? rest : Buffer.from(MASK);
  }

  /** Where the values are, in order; some may overlap. */
  #places(data: Buffer): [start: number, end: number][] {
    const places: [number, number][] = [];
    for (const secret of this.#secrets) {
      for (let at = data.indexOf(secret); at !== -1; at = data.indexOf(secret, at + 1)) {
        places.push([at, at + secret.length]);
      }
    }
    return places.sort(([left], [right]) => left - right);
  }
}

/** Where the data's end begins that the value begins with, if it does. */
function beginningAtEnd(data: Buffer, secret: Buffer): number {
  const [first = 0] = secret;
  for (let at = Math.max(data.length - secret.length + 1, 0); ; at += 1) {
    at = data.indexOf(first, at);
    if (at === -1) return data.length;
    if (data.compare(secret, 0, data.length - at, at) === 0) return at;
  }
}
