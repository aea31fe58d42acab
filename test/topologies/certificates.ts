import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { onTestFinished } from 'vitest';

const run = promisify(execFile);

/** Files in PEM: a certificate authority that nobody knows, and what it vouches for. */
export interface Certificates {
  authority: string;
  certificate: string;
  key: string;
}

/** Makes an authority and a certificate for 127.0.0.1, removed with the test. Takes `openssl`. */
export async function makeCertificates(): Promise<Certificates> {
  const directory = await mkdtemp(join(tmpdir(), 'orc-tls-'));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const openssl = (...args: string[]) => run('openssl', args, { cwd: directory });
  const newKey = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
  await openssl('req', '-x509', ...newKey, ...['-keyout', 'ca.key', '-out', 'ca.pem', '-subj', '/CN=own CA']);
  await openssl('req', ...newKey, ...['-keyout', 'redis.key', '-out', 'redis.csr', '-subj', '/CN=redis']);
  await writeFile(join(directory, 'names'), 'subjectAltName=IP:127.0.0.1\n');
  const signing = ['-CA', 'ca.pem', '-CAkey', 'ca.key', '-CAcreateserial', '-extfile', 'names'];
  await openssl('x509', '-req', '-in', 'redis.csr', '-out', 'redis.pem', ...signing);
  return {
    authority: join(directory, 'ca.pem'),
    certificate: join(directory, 'redis.pem'),
    key: join(directory, 'redis.key'),
  };
}

/** Lines of a Redis configuration: clients need no certificate of their own. */
export function tlsConfig({ authority, certificate, key }: Certificates): string[] {
  return [
    `tls-cert-file ${certificate}`,
    `tls-key-file ${key}`,
    `tls-ca-cert-file ${authority}`,
    'tls-auth-clients no',
    'tls-replication yes',
  ];
}
