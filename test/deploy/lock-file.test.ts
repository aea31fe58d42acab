import { expect, test } from 'vitest';
import { readProjectFile } from '../support/repository.ts';

interface Entry {
  version?: string;
  integrity?: string;
  engines?: { node?: string };
  link?: boolean;
  resolved?: string;
  inBundle?: boolean;
}

const { packages }: { packages: Record<string, Entry> } = JSON.parse(readProjectFile('package-lock.json'));
const { dependencies, devDependencies, engines } = JSON.parse(readProjectFile('package.json'));
const installed = Object.entries(packages).filter(([path, { link }]) => path !== '' && !link);

test('each package has a hash that its download is held against', () => {
  const missing = installed.filter(
    ([, { integrity }]) => !/^sha512-[A-Za-z0-9+/]{86}==/.test(integrity ?? ''),
  );
  expect(missing.map(([path]) => path)).toEqual([]);
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

test('no package wants a newer Node.js than orc does', () => {
  const [, wanted = '', minor = ''] = /^>=(\d+)\.(\d+)$/.exec(engines.node) ?? [];
  /** Whether one of the alternatives of a range begins at or below that version, and goes on to its major version. */
  const allows = (range: string) =>
    range.split('||').some((each) => {
      const [, sign = '', from = '', fromMinor = '0'] =
        /^\s*([\^~]|>=)?\s*v?(\d+|\*)(?:\.(\d+|x))?/.exec(each) ?? [];
      if (from === '*' || from === '') return true;
      if (from === wanted) return !(Number(fromMinor) > Number(minor));
      return sign === '>=' && Number(from) < Number(wanted);
    });
  const newer = installed.filter(([, entry]) => !allows(entry.engines?.node ?? '*'));
  expect(newer.map(([path, entry]) => `${path}: ${entry.engines?.node}`)).toEqual([]);
});
