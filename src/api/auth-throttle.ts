import { isIPv4, isIPv6 } from 'node:net';

/** Failed authentications of one address within a window before it is told to slow down. */
const FAILURES_PER_WINDOW = 100;
const WINDOW_MS = 60_000;

/** Addresses remembered at the same time; the ones that failed first are forgotten first. */
const MAX_ADDRESSES = 10_000;

/**
 * Slows down whoever tries keys: counts the failed authentications of each address, in this process's memory, in windows
 * that begin at the same time for all of them. A valid key is never refused for the failures of others behind the same
 * address, since only failures ask.
 */
export class AuthThrottle {
  readonly #failures = new Map<string, number>();
  #windowEndsAt = 0;

  /**
   * Counts a failure.
   *
   * @param address whatever is known of it
   * @returns seconds after which the address may fail again, or undefined while it may
   */
  failed(address: string | undefined): number | undefined {
    const now = Date.now();
    if (now >= this.#windowEndsAt) {
      this.#failures.clear();
      this.#windowEndsAt = now + WINDOW_MS;
    }
    const network = networkOf(address);
    const failures = (this.#failures.get(network) ?? 0) + 1;
    if (failures === 1) this.#remember(network);
    else this.#failures.set(network, failures);
    return failures > FAILURES_PER_WINDOW ? Math.ceil((this.#windowEndsAt - now) / 1000) : undefined;
  }

  #remember(network: string): void {
    if (this.#failures.size >= MAX_ADDRESSES) {
      const [first = ''] = this.#failures.keys();
      this.#failures.delete(first);
    }
    // An address may be a slice of a header, which would be kept as a whole with it.
    this.#failures.set(Buffer.from(network).toString(), 1);
  }
}

/** What counts as one address. A proxy may pass on something else than an address; all of that counts as one, too. */
function networkOf(address = ''): string {
  if (isIPv4(address)) return address;
  const groups = address.split('%', 1)[0]?.replace(/^::ffff:(?=[\d.]+$)/i, '') ?? '';
  if (isIPv4(groups)) return groups;
  return isIPv6(groups) ? ipv6NetworkOf(groups) : 'no address';
}

/** One customer usually holds a whole /64 of IPv6 addresses (RFC 6177), so that those count as one. */
function ipv6NetworkOf(address: string): string {
  const [head = '', tail] = address.split('::');
  const groups = head.split(':').filter(Boolean);
  const rest = tail?.split(':').filter(Boolean) ?? [];
  const zeros = Array.from({ length: Math.max(8 - groups.length - rest.length, 0) }, () => '0');
  return [...groups, ...(tail === undefined ? [] : zeros), ...rest].slice(0, 4).join(':');
}
