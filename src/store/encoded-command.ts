/** What differs from one command to the next. */
export interface CommandValues {
  /** Of the same length in all commands, and ASCII. */
  id: string;
  /** Encoded as a float64, as MessagePack has it. */
  timestamp: number;
  /** Written in digits, of which all commands have the same number. */
  acceptedAt: number;
  /** An argument of its own. */
  data: string;
}

/** A command as Redis gets it. */
export interface EncodedSample {
  values: CommandValues;
  bytes: Buffer;
}

/** A place in what goes before or after the data. */
interface Gap {
  offset: number;
  isAfterData: boolean;
  value: 'id' | 'timestamp' | 'acceptedAt';
}

const CRLF = '\r\n';

/**
 * A command of which only a few values change. What stays the same is encoded once, and copied with the values written
 * into it. Where they stand is found in a sample, and a second sample shows that there are no others.
 */
export class EncodedCommand {
  readonly #head: Buffer;
  readonly #tail: Buffer;
  readonly #gaps: readonly Gap[];

  private constructor(head: Buffer, tail: Buffer, gaps: readonly Gap[]) {
    this.#head = head;
    this.#tail = tail;
    this.#gaps = gaps;
  }

  /**
   * @param other with every value different, and data of another length
   * @returns undefined when the two samples differ in anything else than these values
   */
  static from({ values, bytes }: EncodedSample, other: EncodedSample): EncodedCommand | undefined {
    const data = Buffer.from(argumentOf(values.data));
    const start = bytes.indexOf(data);
    if (start === -1) return undefined;
    const head = bytes.subarray(0, start);
    const tail = bytes.subarray(start + data.length);
    const texts = [
      ['id', Buffer.from(values.id)],
      ['timestamp', float64(values.timestamp)],
      ['acceptedAt', Buffer.from(`${values.acceptedAt}`)],
    ] as const;
    const gaps = texts.flatMap(([value, text]) => [
      ...offsetsOf(text, head).map((offset) => ({ value, offset, isAfterData: false })),
      ...offsetsOf(text, tail).map((offset) => ({ value, offset, isAfterData: true })),
    ]);
    const command = new EncodedCommand(head, tail, gaps);
    return command.encode(other.values).equals(other.bytes) ? command : undefined;
  }

  encode(values: CommandValues): Buffer {
    const head = this.#head;
    const tail = this.#tail;
    const dataBytes = Buffer.byteLength(values.data);
    const length = `$${dataBytes}${CRLF}`;
    const tailAt = head.length + length.length + dataBytes + CRLF.length;
    const bytes = Buffer.allocUnsafe(tailAt + tail.length);
    head.copy(bytes);
    bytes.write(length, head.length, 'latin1');
    bytes.write(values.data, head.length + length.length);
    bytes.write(CRLF, tailAt - CRLF.length, 'latin1');
    tail.copy(bytes, tailAt);
    for (const { value, offset, isAfterData } of this.#gaps) {
      const at = isAfterData ? tailAt + offset : offset;
      if (value === 'timestamp') bytes.writeDoubleBE(values.timestamp, at);
      else bytes.write(value === 'id' ? values.id : `${values.acceptedAt}`, at, 'latin1');
    }
    return bytes;
  }
}

/** An argument in Redis' serialization protocol, RESP: a bulk string. */
function argumentOf(text: string): string {
  return `$${Buffer.byteLength(text)}${CRLF}${text}${CRLF}`;
}

function float64(value: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeDoubleBE(value);
  return bytes;
}

function offsetsOf(text: Buffer, bytes: Buffer): number[] {
  const offsets: number[] = [];
  for (let at = bytes.indexOf(text); at !== -1; at = bytes.indexOf(text, at + text.length)) offsets.push(at);
  return offsets;
}
