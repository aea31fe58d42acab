import type { Socket } from 'node:net';

/** A request line of RTSP (RFC 2326). No header begins like this, and no line of JSON. */
const RTSP_LINE = /^[A-Z_]+ \S+ RTSP\/\d/m;

const LINE_BEGINNING = /^[A-Z]/;

/** No request line is longer, in bytes. */
const MAX_LINE_BYTES = 16_384;

/** Says when RTSP comes over a connection, before its request does: Node's parser takes it for HTTP, and does not say so. */
export function watchForRtsp(socket: Socket, onRtsp: () => void): void {
  let begun: Buffer | undefined;
  socket.prependListener('data', (chunk: Buffer) => {
    const lines = begun ? Buffer.concat([begun, chunk]) : chunk;
    if (lines.includes(' RTSP/') && RTSP_LINE.test(lines.toString('latin1'))) onRtsp();
    const last = lines.subarray(lines.lastIndexOf('\n') + 1);
    const isBeginning = last.length <= MAX_LINE_BYTES && LINE_BEGINNING.test(last.toString('latin1', 0, 1));
    begun = isBeginning ? last : undefined;
  });
}
