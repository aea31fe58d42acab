import { Command } from 'ioredis';

const encode = Command.prototype.toWritable;

/**
 * Lets ioredis encode commands with binary arguments, as all of BullMQ's scripts are, in a third of the time: what
 * stands between two of those arguments is measured and written once, instead of three times argument by argument.
 */
Command.prototype.toWritable = function toWritable(this: Command, socket: object): string | Buffer {
  const args = this.args as (string | Buffer)[];
  if (!args.some((arg) => typeof arg !== 'string')) return encode.call(this, socket);
  const parts: (string | Buffer)[] = [];
  let text = `*${args.length + 1}\r\n$${Buffer.byteLength(this.name)}\r\n${this.name}\r\n`;
  for (const arg of args) {
    if (typeof arg === 'string') text += `$${Buffer.byteLength(arg)}\r\n${arg}\r\n`;
    else {
      parts.push(`${text}$${arg.length}\r\n`, arg);
      text = '\r\n';
    }
  }
  parts.push(text);
  let length = 0;
  for (const part of parts) length += Buffer.byteLength(part);
  const bytes = Buffer.allocUnsafe(length);
  let offset = 0;
  for (const part of parts) {
    offset += typeof part === 'string' ? bytes.write(part, offset) : part.copy(bytes, offset);
  }
  return bytes;
};
