#!/usr/bin/env node
import { runProgram } from './cli/program.ts';
import { processEnvironment } from './config.ts';

process.exitCode = await runProgram({
  args: process.argv.slice(2),
  stdin: () => process.stdin,
  stdout: process.stdout,
  stderr: process.stderr,
  env: processEnvironment(),
  directory: process.cwd(),
});
