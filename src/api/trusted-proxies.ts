import { compile } from '@fastify/proxy-addr';
import { LruMap } from 'toad-cache';

/** Peers remembered at the same time; a service has few proxies. */
const MAX_PEERS = 1000;

/**
 * Whose `X-Forwarded-*` headers are believed, for Fastify's `trustProxy`. Of the peers of connections it is remembered, as
 * to compare an address with networks takes a twentieth of what a refusal does.
 *
 * @param proxies addresses and networks
 */
export function trustedProxies(proxies: string[]): (address: string | undefined, hop: number) => boolean {
  const isProxy = compile(proxies);
  const peers = new LruMap<boolean>(MAX_PEERS);
  return (address, hop) => {
    // Of a connection that is closed.
    if (address === undefined) return false;
    // Further addresses come from a header: anybody can invent them.
    if (hop > 0) return isProxy(address, hop);
    let isTrusted = peers.get(address);
    if (isTrusted === undefined) {
      isTrusted = isProxy(address, hop);
      peers.set(address, isTrusted);
    }
    return isTrusted;
  };
}
