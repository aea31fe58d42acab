import { isIP, isIPv6 } from 'node:net';
import type { Config } from '../../config.ts';
import { isLoopback } from '../../core/loopback.ts';
import { type Finding, ok, problem, warning } from '../../ops/findings/finding.ts';

/** A network with a shorter prefix than this, in bits, is too large to hold only one's own proxies. */
const WIDEST_PREFIX = { ipv4: 8, ipv6: 16 } as const;

/** Whether PUBLIC_URL and TRUST_PROXY fit the way the API is reached. */
export function checkEnvironment(config: Config): Finding[] {
  return [checkPublicUrl(config), checkProxies(config)];
}

function checkPublicUrl({ PUBLIC_URL, HOST, TRUST_PROXY }: Config): Finding {
  const isReachable = !isThisMachine(HOST) || TRUST_PROXY !== undefined;
  if (PUBLIC_URL === undefined) {
    if (!isReachable) return ok('PUBLIC_URL', 'not set; only this machine can reach the API');
    const message = 'not set: links come from the headers of each request';
    return warning('PUBLIC_URL', message, 'PUBLIC_URL=https://<the name callers use>');
  }
  const { protocol, hostname, host } = new URL(PUBLIC_URL);
  if (protocol === 'https:' || isThisMachine(hostname)) return ok('PUBLIC_URL', PUBLIC_URL);
  const message = `${PUBLIC_URL}: API keys cross the network unencrypted`;
  return warning('PUBLIC_URL', message, `PUBLIC_URL=https://${host}, with TLS at a load balancer`);
}

function checkProxies({ TRUST_PROXY, PUBLIC_URL }: Config): Finding {
  const cure = 'TRUST_PROXY=<the addresses of the load balancer>';
  if (TRUST_PROXY === undefined) {
    // The API has no TLS, so something in front of it must.
    if (!PUBLIC_URL?.startsWith('https:')) return ok('TRUST_PROXY', 'not set');
    const message = "not set, but TLS needs a proxy: every caller appears to have the proxy's address";
    return warning('TRUST_PROXY', message, cure);
  }
  const networks = TRUST_PROXY.split(',').map((network) => network.trim());
  const malformed = networks.filter((network) => prefixOf(network) === undefined);
  if (malformed.length > 0) {
    return problem('TRUST_PROXY', `not an address or network: ${malformed.join(', ')}`, cure);
  }
  const wide = networks.filter((network) => {
    const widest = isIPv6(network.split('/')[0] ?? '') ? WIDEST_PREFIX.ipv6 : WIDEST_PREFIX.ipv4;
    return (prefixOf(network) ?? 0) < widest;
  });
  if (wide.length > 0) {
    const message = `${wide.join(', ')} lets callers forge their address`;
    return problem('TRUST_PROXY', message, cure);
  }
  return ok('TRUST_PROXY', networks.join(', '));
}

/** Length of a network's prefix in bits; undefined when the text is not a network. */
function prefixOf(network: string): number | undefined {
  const [address = '', bits, ...rest] = network.split('/');
  const width = { 0: 0, 4: 32, 6: 128 }[isIP(address)] ?? 0;
  if (width === 0 || rest.length > 0) return undefined;
  if (bits === undefined) return width;
  return /^\d{1,3}$/.test(bits) && Number(bits) <= width ? Number(bits) : undefined;
}

function isThisMachine(host: string): boolean {
  return isLoopback(host) || host.endsWith('.localhost');
}
