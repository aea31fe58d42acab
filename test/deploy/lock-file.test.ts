import { expect, test } from 'vitest';
import { readProjectFile } from '../support/repository.ts';

interface Entry {
  version?: string;
  integrity?: string;
  link?: boolean;
  resolved?: string;
  inBundle?: boolean;
  optional?: boolean;
  os?: string[];
}

const { packages }: { packages: Record<string, Entry> } = JSON.parse(readProjectFile('package-lock.json'));
const { dependencies, devDependencies } = JSON.parse(readProjectFile('package.json'));
const installed = Object.entries(packages).filter(([path, { link }]) => path !== '' && !link);

/**
 * Binaries for machines unlike those that this project is tested on, whose hashes the registry did not tell when the lock
 * file was made. This list may only get shorter: `npm view NAME@VERSION dist.integrity` tells a hash.
 */
const WITHOUT_HASH = /^node_modules\/(@biomejs\/cli-|@oxc-parser\/binding-)/;
const MOST_WITHOUT_HASH = 23;

test('each package has a hash that its download is held against', () => {
  const missing = installed.filter(
    ([, { integrity }]) => !/^sha512-[A-Za-z0-9+/]{86}==/.test(integrity ?? ''),
  );
  expect(missing.map(([path]) => path).filter((path) => !WITHOUT_HASH.test(path))).toEqual([]);
  expect(missing.length).toBeLessThanOrEqual(MOST_WITHOUT_HASH);
  // None is installed on Linux with glibc, on Intel's and ARM's processors, which the image is for.
  for (const [path, { os, optional }] of missing) {
    expect([path, optional, os?.includes('linux') && /linux-(x64|arm64)(-gnu)?$/.test(path)]).toEqual([
      path,
      true,
      false,
    ]);
  }
});

test('no package has an address that it is downloaded from', () => {
  expect(installed.length).toBeGreaterThan(500);
  expect(installed.filter(([, { resolved }]) => resolved !== undefined)).toEqual([]);
});

test('what builds Redis has an exact version, and each dependency one in the lock file', () => {
  expect(devDependencies['redis-memory-server']).toMatch(/^\d+\.\d+\.\d+$/);
  expect(packages['node_modules/redis-memory-server']?.version).toBe(devDependencies['redis-memory-server']);
  for (const name of Object.keys({ ...dependencies, ...devDependencies })) {
    expect(packages[`node_modules/${name}`]?.version, name).toMatch(/^\d+\.\d+\.\d+/);
  }
});
