import { execFile } from 'node:child_process';
import { mkdtemp, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import { BlockList, isIPv6 } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, onTestFinished, test } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { LAST_RESORT_MS } from '../../src/cli/closing.ts';
import { ConfigSchema, readConfig } from '../../src/config.ts';
import { hasCommand } from '../support/machine.ts';
import { ROOT, readProjectFile } from '../support/repository.ts';

const run = promisify(execFile);
const FOLDER = 'docs/kubernetes';

interface Manifest {
  apiVersion: string;
  kind: string;
  metadata: { name: string };
  // biome-ignore lint/suspicious/noExplicitAny: what it holds is what these tests find out
  [field: string]: any;
}

function documentsOf(yaml: string): Manifest[] {
  return parseAllDocuments(yaml).map((document) => {
    expect(document.errors).toEqual([]);
    return document.toJS();
  });
}

const files = (await readdir(`${ROOT}${FOLDER}`)).sort();
const manifests = files
  .filter((file) => file !== 'kustomization.yaml')
  .flatMap((file) => documentsOf(readProjectFile(`${FOLDER}/${file}`)));

function find(kind: string, name: string): Manifest {
  const found = manifests.find((manifest) => manifest.kind === kind && manifest.metadata.name === name);
  if (!found) throw new Error(`There is no ${kind} ${name}`);
  return found;
}

/** The module with the models of an API group. */
function moduleOf({ apiVersion }: Manifest): string {
  const models = apiVersion.startsWith('keda.sh/') ? '@kubernetes-models/keda' : 'kubernetes-models';
  return `${models}/${apiVersion}`;
}

test.each(manifests)('$kind $metadata.name satisfies the schema of its kind', async (manifest) => {
  const models = await import(moduleOf(manifest));
  new models[manifest.kind](manifest).validate();
});

test('no manifest has a field that its kind does not know', async () => {
  // The schemas allow unknown fields, as a misspelt one is; the compiler allows none in a literal.
  const folder = await mkdtemp(join(tmpdir(), 'orc-manifests-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  await symlink(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
  const compile = async (checked: Manifest[]) => {
    const lines = checked.map((manifest, index) => {
      const type = `I${manifest.kind}`;
      const literal = JSON.stringify(manifest, null, 1);
      return `import type { ${type} as T${index} } from '${moduleOf(manifest)}';\nexport const m${index}: T${index} = ${literal};\n`;
    });
    await writeFile(join(folder, 'manifests.ts'), lines.join('\n'));
    const options = ['--noEmit', '--strict', '--skipLibCheck', '--module', 'nodenext', '--target', 'es2022'];
    return run(
      process.execPath,
      [join(ROOT, 'node_modules/typescript/bin/tsc'), ...options, 'manifests.ts'],
      {
        cwd: folder,
      },
    ).then(
      () => '',
      ({ stdout }: { stdout: string }) => stdout,
    );
  };
  expect(await compile(manifests)).toBe('');

  const misspelt = structuredClone(find('Deployment', 'orc-api'));
  misspelt['spec'].template.spec.containers[0].readinesProbe = {};
  expect(await compile([misspelt])).toContain('readinesProbe');
});

test.runIf(hasCommand('kubectl'))('kustomize puts them together', async () => {
  const { stdout } = await run('kubectl', ['kustomize', `${ROOT}${FOLDER}`]);
  const built = documentsOf(stdout);
  expect(built.map(({ kind, metadata }) => `${kind} ${metadata.name}`).sort()).toEqual(
    manifests
      .filter(({ kind }) => kind !== 'Secret' && kind !== 'ScaledObject')
      .map(({ kind, metadata }) => `${kind} ${metadata.name}`)
      .sort(),
  );
  for (const { metadata } of built) expect(metadata).toMatchObject({ namespace: 'orc' });
});

test('the environment is one that orc takes', () => {
  const { data } = find('ConfigMap', 'orc');
  const { stringData } = find('Secret', 'orc-redis');
  expect(() => readConfig({ ...data, ...stringData })).not.toThrow();
  const [container] = find('Deployment', 'orc-worker')['spec'].template.spec.containers;
  const names = [data, stringData, ...container.env.map(({ name }: { name: string }) => ({ [name]: '' }))];
  const known = [...Object.keys(ConfigSchema.properties), 'OPS_HOST', 'OPS_PORT'];
  for (const name of names.flatMap(Object.keys)) expect(known).toContain(name);
});

test.each(['orc-api', 'orc-console'])(
  '%s reads the secret from a file, and the worker, whose commands read its files, from the environment',
  (name) => {
    const { containers, volumes } = find('Deployment', name)['spec'].template.spec;
    const [{ env, envFrom, volumeMounts }] = containers;
    const [variable] = env;
    const { stringData } = find('Secret', 'orc-redis');
    const mount = volumeMounts.find((each: { name: string }) => each.name === 'redis');
    expect(mount.readOnly).toBe(true);
    expect([variable.name, variable.value]).toEqual(['REDIS_URL_FILE', `${mount.mountPath}/REDIS_URL`]);
    expect(Object.keys(stringData)).toEqual(['REDIS_URL']);
    const { secret } = volumes.find((each: { name: string }) => each.name === mount.name);
    expect(secret).toEqual({ secretName: 'orc-redis', defaultMode: 0o440 });
    expect(envFrom).toEqual([{ configMapRef: { name: 'orc' } }]);
    const worker = find('Deployment', 'orc-worker')['spec'].template.spec;
    expect(worker.containers[0].envFrom).toContainEqual({ secretRef: { name: 'orc-redis' } });
    expect(JSON.stringify(worker.volumes)).not.toContain('secret');
  },
);

test.each(['orc-api', 'orc-worker', 'orc-console'])(
  'a pod of %s has limits, and connections by a policy only',
  (name) => {
    const { template } = find('Deployment', name)['spec'];
    expect(template.spec.containers[0].resources.limits).toEqual({
      cpu: expect.any(String),
      memory: expect.any(String),
      'ephemeral-storage': expect.any(String),
    });
    const { spec } = find('NetworkPolicy', name);
    expect(spec.podSelector.matchLabels).toEqual(template.metadata.labels);
    expect(spec.policyTypes).toEqual(['Ingress', 'Egress']);
    const named = template.spec.containers[0].ports.map((port: { name: string }) => port.name);
    for (const { from, ports } of spec.ingress) {
      expect(from).not.toEqual([]);
      for (const { port } of ports) expect(named).toContain(port);
    }
    const ports = spec.egress.flatMap((rule: { ports?: { port: number }[] }) => rule.ports ?? []);
    expect(ports).toContainEqual({ port: 6379 });
    expect(ports).toContainEqual({ port: 53, protocol: 'UDP' });
  },
);

test('a worker has a volume for the workspaces of agents, and room on its disk for all that it may hold', () => {
  const { containers, volumes } = find('Deployment', 'orc-worker')['spec'].template.spec;
  const [{ env, volumeMounts, resources }] = containers;
  const [{ value }] = env.filter(({ name }: { name: string }) => name === 'WORKSPACE_DIR');
  const [{ name }] = volumeMounts.filter(({ mountPath }: { mountPath: string }) => mountPath === value);
  const sizes = new Map<string, number>(
    volumes.map((volume: { name: string; emptyDir: { sizeLimit: string } }) => [
      volume.name,
      Number(/^(\d+)Gi$/.exec(volume.emptyDir.sizeLimit)?.[1]),
    ]),
  );
  expect(sizes.get(name)).toBeGreaterThan(0);
  const sum = [...sizes.values()].reduce((total, size) => total + size, 0);
  expect(Number.parseInt(resources.limits['ephemeral-storage'], 10)).toBeGreaterThan(sum);
});

test('commands reach neither the cluster nor the metadata of its machines', () => {
  const { egress } = find('NetworkPolicy', 'orc-worker')['spec'];
  const blocks = egress.flatMap(({ to = [] }: { to?: { ipBlock?: { cidr: string; except: string[] } }[] }) =>
    to.flatMap(({ ipBlock }) => (ipBlock ? [ipBlock] : [])),
  );
  expect(blocks.map(({ cidr }: { cidr: string }) => cidr)).toEqual(['0.0.0.0/0', '::/0']);
  const closed = new BlockList();
  for (const range of blocks.flatMap(({ except }: { except: string[] }) => except)) {
    const [network = '', bits] = range.split('/');
    closed.addSubnet(network, Number(bits), isIPv6(network) ? 'ipv6' : 'ipv4');
  }
  for (const address of [
    '10.1.2.3',
    '127.0.0.1',
    '169.254.169.254',
    '172.20.0.1',
    '192.168.1.1',
    '100.100.1.1',
  ]) {
    expect([address, closed.check(address)]).toEqual([address, true]);
  }
  for (const address of ['fd00:ec2::254', 'fe80::1']) {
    expect([address, closed.check(address, 'ipv6')]).toEqual([address, true]);
  }
  expect(closed.check('93.184.216.34')).toBe(false);
});

test.each(['orc-api', 'orc-worker', 'orc-console'])(
  'a pod of %s is given the time that orc takes to end',
  (name) => {
    const graceMs = Number(find('ConfigMap', 'orc')['data'].SHUTDOWN_GRACE_MS);
    const { spec } = find('Deployment', name)['spec'].template;
    const pauseMs = Number(spec.containers[0].lifecycle?.preStop.exec.command[1] ?? 0) * 1000;
    expect(spec.terminationGracePeriodSeconds * 1000).toBeGreaterThan(pauseMs + graceMs + LAST_RESORT_MS);
  },
);

test.each(['orc-api', 'orc-worker', 'orc-console'])(
  'a pod of %s has no rights, and is found by what refers to it',
  (name) => {
    const { spec: deployment } = find('Deployment', name);
    const { metadata, spec } = deployment.template;
    expect(metadata.labels).toEqual(deployment.selector.matchLabels);
    // Operators can do without the console while its pod moves.
    if (name !== 'orc-console') {
      expect(find('PodDisruptionBudget', name)['spec'].selector.matchLabels).toEqual(metadata.labels);
    }
    expect(spec).toMatchObject({
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      securityContext: { runAsNonRoot: true, runAsUser: name === 'orc-worker' ? 1001 : 1000 },
    });
    const [container] = spec.containers;
    expect(container.securityContext).toEqual({
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ['ALL'] },
    });
    const { OPS_PORT } = find('ConfigMap', 'orc')['data'];
    expect(metadata.annotations['prometheus.io/port']).toBe(OPS_PORT);
    expect(container.ports).toContainEqual({ name: 'ops', containerPort: Number(OPS_PORT) });
    for (const probe of ['startupProbe', 'livenessProbe', 'readinessProbe']) {
      expect(container[probe].httpGet.port).toBe('ops');
    }
    expect(container.livenessProbe.httpGet.path).toBe('/live');
    expect(container.readinessProbe.httpGet.path).toBe('/ready');
  },
);

test.each(['orc-api', 'orc-console'])('the Service %s leads to its pods', (name) => {
  const { spec } = find('Service', name);
  const { template } = find('Deployment', name)['spec'];
  expect(template.metadata.labels).toMatchObject(spec.selector);
  const names = template.spec.containers[0].ports.map((port: { name: string }) => port.name);
  expect(names).toContain(spec.ports[0].targetPort);
});

test('the autoscalers lead to what they scale', () => {
  const { scaleTargetRef } = find('HorizontalPodAutoscaler', 'orc-api')['spec'];
  expect(find(scaleTargetRef.kind, scaleTargetRef.name)['spec']).not.toHaveProperty('replicas');
  expect(find('Deployment', find('ScaledObject', 'orc-worker')['spec'].scaleTargetRef.name)).toBeDefined();
});
