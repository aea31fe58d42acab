/**
 * Lua: `touch(key, now)` notes that an automation has changed, at a time later than that of the change before, so that two
 * changes in one millisecond can be told apart.
 */
export const TOUCH = `
  local function touch(key, now)
    local before = tonumber(redis.call('HGET', key, 'updatedAt') or '0')
    redis.call('HSET', key, 'updatedAt', string.format('%.0f', math.max(tonumber(now), before + 1)))
  end`;
