import type { Socket } from 'node:net';

/** A request line that has come from its beginning, and is too long whatever follows. */
const LONG_REQUEST_LINE = /^[A-Z-]{1,20} [^\r\n]{8192}/;

const REQUEST_LINE_END = / HTTP\/\d\.\d\r?$/;

/** The end of a line is waited for this long, in milliseconds. */
const LINE_END_MS = 2000;

/**
 * Whether the line that Node's parser gave up, because the headers are too large, is the request line; it does not say.
 * When the beginning of the line came in an earlier packet, how it ends tells.
 *
 * @param packet what the parser was reading
 * @param offset where in the packet it stopped
 */
export function isRequestLineTooLong(socket: Socket, packet: Buffer, offset: number): Promise<boolean> {
  const text = packet.toString('latin1');
  const start = text.lastIndexOf('\n', offset - 1) + 1;
  const isBegun = LONG_REQUEST_LINE.test(text.slice(start));
  if (isBegun || start > 0) return Promise.resolve(isBegun);
  return new Promise((resolve) => {
    let line = '';
    const read = (chunk: string | Buffer) => {
      // Only its end matters.
      line = line.slice(-REQUEST_LINE_END.source.length) + chunk.toString('latin1');
      const end = line.indexOf('\n');
      if (end >= 0) decide(REQUEST_LINE_END.test(line.slice(0, end)));
    };
    const giveUp = () => decide(false);
    const timer = setTimeout(giveUp, LINE_END_MS);
    const decide = (isRequestLine: boolean) => {
      clearTimeout(timer);
      socket.off('data', read).off('close', giveUp);
      resolve(isRequestLine);
    };
    socket.on('data', read).once('close', giveUp);
    read(text.slice(offset));
  });
}
