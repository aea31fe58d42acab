/**
 * A Lua function that ends a run which no worker holds, which BullMQ cannot do: it writes what BullMQ writes for a job that
 * failed, with the run's outcome as the reason. The run must be in none of the queue's lists any more.
 */
export const END_UNHELD = `
local function endUnheld(jobKey, failedKey, runId, endedAt, outcome)
  redis.call('HSET', jobKey, 'finishedOn', endedAt, 'failedReason', outcome)
  redis.call('ZADD', failedKey, endedAt, runId)
end`;
