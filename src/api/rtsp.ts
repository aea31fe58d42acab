import type { Socket } from 'node:net';

/** A request line of RTSP (RFC 2326). No header begins like this, and no line of JSON. */
const RTSP_LINE = /^[A-Z_]+ \S+ RTSP\/\d/m;

const LINE_FEED = 0x0a;

/** No request line is longer, in bytes. */
const MAX_LINE_BYTES = 16_384;

/** Says when RTSP comes over a connection, before its request does: Node's parser takes it for HTTP, and does not say so. */
export function watchForRtsp(socket: Socket, onRtsp: () => void): void {
  let begun: Buffer | undefined;
  socket.prependListener('data', (chunk: Buffer) => {
    const lines = begun ? Buffer.concat([begun, chunk]) : chunk;
    if (lines.includes(' RTSP/') && RTSP_LINE.test(lines.toString('latin1'))) onRtsp();
    const lineAt = lines.lastIndexOf(LINE_FEED) + 1;
    const hasBegun = isLetter(lines[lineAt]) && lines.length - lineAt <= MAX_LINE_BYTES;
    begun = hasBegun ? lines.subarray(lineAt) : undefined;
  });
}

/** Whether a line that begins with this byte can be a request line. */
function isLetter(byte = 0): boolean {
  return byte >= 0x41 && byte <= 0x5a;
}
