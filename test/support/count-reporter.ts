import type { Reporter, TestModule, TestState, Vitest } from 'vitest/node';

/**
 * Prints `12 passed, 0 failed` as the last line of the output, with `, 3 skipped` when tests were skipped.
 *
 * A file that cannot be imported, a hook that throws and an error outside of any test count as one failure each,
 * and a run whose exit code is not 0 never says `0 failed`.
 */
export default class CountReporter implements Reporter {
  #passed = 0;
  #failed = 0;
  #skipped = 0;

  onInit(vitest: Vitest): void {
    if (vitest.config.watch) return;
    // Not in onTestRunEnd: the global teardown comes after it, and can still print and fail.
    process.once('exit', (code) => {
      const failed = code === 0 ? this.#failed : Math.max(this.#failed, 1);
      const skipped = this.#skipped > 0 ? `, ${this.#skipped} skipped` : '';
      process.stdout.write(`${this.#passed} passed, ${failed} failed${skipped}\n`);
    });
  }

  onTestRunEnd(modules: readonly TestModule[], errorsOutsideTests: readonly unknown[]): void {
    const states = modules.flatMap(({ children }) =>
      [...children.allTests()].map((test) => test.result().state),
    );
    const count = (state: TestState) => states.filter((other) => other === state).length;
    const suites = modules.flatMap((module) => [module, ...module.children.allSuites()]);

    this.#passed = count('passed');
    this.#skipped = count('skipped');
    this.#failed =
      count('failed') +
      suites.filter((suite) => suite.errors().length > 0).length +
      errorsOutsideTests.length;
  }

  /** Called when something keeps the process alive after the tests: a leaked server, connection or child. */
  onProcessTimeout(): void {
    process.exitCode = 1;
  }
}
