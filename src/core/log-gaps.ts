/** What is known of the place of a piece of a run's log. */
export interface LogPiece {
  attempt: number;
  /** Number of bytes of the attempt's log before it. */
  offset: number;
  bytes: number;
}

/**
 * Counts the bytes that were cut from a log before each of its pieces, which come in order.
 *
 * @param startsLate whether the first piece is not the beginning of the log; what is before it was not cut
 */
export function gapFinder(startsLate = false): (piece: LogPiece) => number {
  /** Offset of each attempt's next piece if nothing is cut before it. */
  const offsets = new Map<number, number>();
  return ({ attempt, offset, bytes }) => {
    const isFirst = startsLate && offsets.size === 0;
    const cut = isFirst ? 0 : offset - (offsets.get(attempt) ?? 0);
    offsets.set(attempt, offset + bytes);
    return cut;
  };
}
