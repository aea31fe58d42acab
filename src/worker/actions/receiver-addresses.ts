import { lookup } from 'node:dns';
import { BlockList, isIP, isIPv4, type LookupFunction } from 'node:net';

/** What machines tell about themselves, credentials included, to whoever asks them: link-local, and metadata services. */
const METADATA: readonly Network[] = [
  ['169.254.0.0', 16],
  ['100.100.100.200', 32],
  ['168.63.129.16', 32],
  ['192.0.0.192', 32],
  ['fe80::', 10],
  ['fd00:ec2::254', 128],
  ['fd20:ce::254', 128],
];

/** This machine, and networks that the internet does not reach. */
const PRIVATE: readonly Network[] = [
  ['0.0.0.0', 8],
  ['10.0.0.0', 8],
  ['100.64.0.0', 10],
  ['127.0.0.0', 8],
  ['172.16.0.0', 12],
  ['192.168.0.0', 16],
  ['198.18.0.0', 15],
  ['::', 128],
  ['::1', 128],
  ['fc00::', 7],
  ['fec0::', 10],
];

/** IPv6 prefixes that a whole IPv4 address follows: IPv4-mapped, IPv4-compatible, and translated (RFC 6052). */
const IPV4_PREFIXES = ['::ffff:', '::', '64:ff9b::'];
const IPV4_PREFIX_BITS = 96;

type Network = readonly [address: string, prefixBits: number];

/** An automation's URL leads to an address that nothing is delivered to. */
export class DeniedAddressError extends Error {
  override name = 'DeniedAddressError';
}

/** Which addresses receivers may have. */
export interface ReceiverAddresses {
  /**
   * For a host that is an address itself, which is connected to without a lookup.
   *
   * @throws DeniedAddressError
   */
  check(host: string): void;
  /** Looks names up as Node does. Fails with a DeniedAddressError when one of the addresses is denied. */
  lookup: LookupFunction;
}

/** @param deny `private` for what only this machine or its network reaches, besides what is denied always */
export function receiverAddresses(deny?: 'private'): ReceiverAddresses {
  const kinds = [{ name: 'a link-local or metadata address', networks: blockListOf(METADATA) }];
  if (deny === 'private') {
    kinds.push({ name: 'a private address (DELIVERY_DENY)', networks: blockListOf(PRIVATE) });
  }
  const refusalOf = (host: string, address: string): DeniedAddressError | undefined => {
    const family = isIPv4(address) ? 'ipv4' : 'ipv6';
    const kind = kinds.find(({ networks }) => networks.check(address, family));
    if (!kind) return undefined;
    const subject = host === address ? address : `${host} has the address ${address}, which`;
    return new DeniedAddressError(`${subject} is ${kind.name}`);
  };
  return {
    check: (host) => {
      const refusal = isIP(host) === 0 ? undefined : refusalOf(host, host);
      if (refusal) throw refusal;
    },
    lookup: (host, options, callback) => {
      lookup(host, { ...options, all: true }, (error, found) => {
        if (error) return callback(error, '');
        for (const { address } of found) {
          const refusal = refusalOf(host, address);
          if (refusal) return callback(refusal, '');
        }
        if (options.all) return callback(null, found);
        return callback(null, found[0]?.address ?? '', found[0]?.family);
      });
    },
  };
}

function blockListOf(networks: readonly Network[]): BlockList {
  const list = new BlockList();
  for (const [address, prefixBits] of networks) {
    if (!isIPv4(address)) {
      list.addSubnet(address, prefixBits, 'ipv6');
      continue;
    }
    list.addSubnet(address, prefixBits, 'ipv4');
    for (const prefix of IPV4_PREFIXES) {
      list.addSubnet(`${prefix}${address}`, IPV4_PREFIX_BITS + prefixBits, 'ipv6');
    }
  }
  return list;
}
