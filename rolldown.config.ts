import { defineConfig } from 'rolldown';
import packageJson from './package.json' with { type: 'json' };

/** What is optional, what only builds the pages, and a native package. */
const OUTSIDE = [
  ...Object.keys(packageJson.peerDependencies),
  'marked',
  'rolldown',
  'shiki',
  'msgpackr-extract',
];

/**
 * Makes `dist`: the code and its dependencies in a few files. A process would need twice as long to find and load a thousand
 * small ones. The dependencies stay what package.json calls them: their licences come with them, scanners see them, and
 * some of what is optional needs them.
 */
export default defineConfig({
  input: {
    orc: 'src/orc.ts',
    'guard-process': 'src/worker/guard/guard-process.ts',
    'build/write-site': 'src/pages/build/write-site.ts',
    'build/write-console': 'src/console/build/write-console.ts',
    'build/write-openapi': 'src/api/write-openapi.ts',
    'build/write-schema': 'src/cli/write-schema.ts',
  },
  platform: 'node',
  external: (id) => OUTSIDE.some((name) => id === name || id.startsWith(`${name}/`)),
  output: {
    dir: 'dist',
    cleanDir: true,
    chunkFileNames: 'chunks/[name].js',
    // For stack traces with `--enable-source-maps`, which name files and lines and show no text.
    sourcemap: true,
    sourcemapExcludeSources: true,
    // Node keeps the text of what it has loaded: in two bytes for every character of a file that has one beyond Latin-1.
    charset: 'ascii',
    comments: false,
  },
});
