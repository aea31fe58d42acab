import type { Logger } from '../logger.ts';
import type { Store } from '../store/store.ts';
import type { Readings } from './readings.ts';

export interface ConsoleDependencies {
  /** For pages it is for reading only: changes go through the request's own, which records them. */
  store: Store;
  logger: Logger;
  settings: ConsoleSettings;
}

/** What the pages get. */
export interface PageDependencies extends ConsoleDependencies {
  readings: Readings;
}

export interface ConsoleSettings {
  /** The console's origin for operators, such as `https://console.example.com`, without a slash at its end. */
  url: string;
  /** The API's origin for callers, for lines of curl, without a slash at its end. */
  apiUrl: string;
  version: string;
  /** Largest payload of a run, in bytes. */
  bodyLimitBytes: number;
  /** Runs that may wait at the same time. */
  maxQueuedRuns: number;
  /** Time limit of an attempt of an automation without one of its own, in milliseconds. */
  runTimeoutMs: number;
  /** KEEP_BYTES, if it is set. */
  keepBytes?: number | undefined;
  /** Addresses and networks of proxies that are believed. */
  trustedProxies: string[];
  /** The header in which a trusted proxy names the operator. */
  userHeader?: string;
}
