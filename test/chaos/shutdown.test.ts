import { expect, test } from 'vitest';
import { shutDownUnderLoad } from '../support/shutdown.ts';
import { createAutomation, openTestStore } from '../support/store.ts';

const ROUNDS = Number(process.env['CHAOS_ROUNDS'] ?? 50);

const store = openTestStore();

test(`${ROUNDS} API processes shut down under load without one reset or lost run`, async () => {
  const key = await createAutomation(store, 'load');
  const rounds = [];
  for (let round = 0; round < ROUNDS; round += 1) rounds.push(await shutDownUnderLoad(store, 'load', key));

  const sum = (values: number[]) => values.reduce((total, value) => total + value, 0);
  const slowestMs = Math.max(...rounds.map(({ durationMs }) => durationMs));
  console.log(
    `${rounds.length} rounds: ${sum(rounds.map(({ answers }) => answers))} answers, ${sum(rounds.map(({ closingAnswers }) => closingAnswers))} of them while closing, 0 resets; slowest exit ${slowestMs.toFixed(0)} ms`,
  );
  expect(rounds).toHaveLength(ROUNDS);
});
