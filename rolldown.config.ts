import { defineConfig } from 'rolldown';
import packageJson from './package.json' with { type: 'json' };

/** What builds the pages, and a native part of msgpackr that it does without where there is none. */
const NEVER_SHIPPED = ['marked', 'shiki', 'msgpackr-extract'];

/** Not all of these are installed; they are loaded by who wants them. */
const optional = [...Object.keys(packageJson.peerDependencies), ...NEVER_SHIPPED];

/**
 * Makes `dist`: the code and its dependencies in a few files. Node would need longer to find and load a thousand small ones
 * than for everything else that a process does until it is ready, and a third more memory.
 */
export default defineConfig({
  input: {
    orc: 'src/orc.ts',
    'guard-process': 'src/worker/guard-process.ts',
    'build/write-site': 'src/pages/build/write-site.ts',
    'build/write-openapi': 'src/api/write-openapi.ts',
    'build/write-schema': 'src/cli/write-schema.ts',
  },
  platform: 'node',
  external: (id) => optional.some((name) => id === name || id.startsWith(`${name}/`)),
  output: { dir: 'dist', cleanDir: true, chunkFileNames: 'chunks/[name].js' },
});
