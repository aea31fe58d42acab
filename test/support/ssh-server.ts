import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { freePort } from '../../src/local/free-port.ts';
import { findDebianProgram } from './debian-program.ts';
import { hasCommand } from './machine.ts';

export interface SshServer {
  /** The server in a URL, with its user and port; a path follows. */
  url: string;
  /** File with the only key that may log in, which has no password. */
  key: string;
  /** File with the server's own key, for clients. */
  knownHosts: string;
  /** What it has logged: who logged in by which key. */
  log(): string;
  stop(): void;
}

/** What sshd insists on when root starts it: a user of this name, and a folder for it. */
const PRIVATE_SYSTEM = `
  mount -t tmpfs tmpfs /run && mkdir /run/sshd
  { cat /etc/passwd; echo sshd:x:65533:65533::/run/sshd:/usr/sbin/nologin; } > "$0/passwd"
  mount --bind "$0/passwd" /etc/passwd
  exec "$@"`;

/**
 * Starts OpenSSH's server on a port of loopback: this user logs in by a key, and gets a shell.
 *
 * @returns undefined, after a line for people, where it cannot be had
 */
export async function startSshServer(folder: string): Promise<SshServer | undefined> {
  const isRoot = userInfo().uid === 0;
  if (!hasCommand('ssh-keygen') || (isRoot && !hasCommand('unshare'))) {
    console.warn('SKIPPED: there is no ssh-keygen or, for root, no unshare.');
    return undefined;
  }
  const sshd = await findDebianProgram({
    names: ['/usr/sbin/sshd'],
    packages: ['openssh-server', 'libwrap0'],
    path: 'usr/sbin/sshd',
    version: '-V',
  });
  if (!sshd) return undefined;
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const [hostKey, key, configuration] = ['host', 'key', 'sshd_config'].map((name) => join(folder, name)) as [
    string,
    string,
    string,
  ];
  for (const file of [hostKey, key]) {
    execFileSync('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-C', '', '-f', file]);
  }
  const port = await freePort();
  const lines = [
    ...['ListenAddress 127.0.0.1', `Port ${port}`, `HostKey ${hostKey}`, 'PidFile none'],
    ...[`AuthorizedKeysFile ${key}.pub`, 'StrictModes no', 'UsePAM no', 'LogLevel VERBOSE'],
    ...['PasswordAuthentication no', 'KbdInteractiveAuthentication no', 'PermitRootLogin prohibit-password'],
    `SetEnv PATH=${process.env['PATH']}`,
  ];
  writeFileSync(configuration, `${lines.join('\n')}\n`);
  const knownHosts = join(folder, 'known_hosts');
  writeFileSync(knownHosts, `[127.0.0.1]:${port} ${readFileSync(`${hostKey}.pub`, 'utf8')}`);
  const command = [sshd.command, '-D', '-e', '-f', configuration];
  const asRoot = ['unshare', '--mount', '--kill-child', '--fork', 'sh', '-c', PRIVATE_SYSTEM, folder];
  const [program = '', ...args] = isRoot ? [...asRoot, ...command] : command;
  const child: ChildProcess = spawn(program, args, { env: sshd.env, stdio: ['ignore', 'ignore', 'pipe'] });
  let log = '';
  await new Promise<void>((resolve, reject) => {
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      log += text;
      if (log.includes('Server listening')) resolve();
    });
    child.on('exit', () => reject(new Error(`sshd has ended: ${log}`)));
  });
  return {
    url: `ssh://${userInfo().username}@127.0.0.1:${port}`,
    key,
    knownHosts,
    log: () => log,
    stop: () => void child.kill('SIGKILL'),
  };
}
