import type { FastifyRequest } from 'fastify';
import { isLoopback } from '../core/loopback.ts';

/**
 * Whether the Host header names this machine. A page of another site that is open in a browser here can have its own name
 * lead to this address, and would be told what only this machine is to know.
 */
export function asksForLoopback({ headers: { host = '' } }: FastifyRequest): boolean {
  return URL.canParse(`http://${host}`) && isLoopback(new URL(`http://${host}`).hostname);
}
