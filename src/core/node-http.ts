/**
 * Node's HTTP, not by `import`: Node 24 then reads all that the module exports, and with its `WebSocket` loads the whole of
 * undici, 14 MB and 50 ms of CPU that nobody here needs.
 */
export const { request, STATUS_CODES } = process.getBuiltinModule('node:http');
