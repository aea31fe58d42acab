// A receiver of deliveries and events: ORC_SECRET=whsec_… node receiver.mjs
import { createServer } from 'node:http';
import { text } from 'node:stream/consumers';
import { verify } from './verify.mjs';

const { ORC_SECRET, PORT = '8080' } = process.env;
// A delivery that is tried again has the same id. Where it must not be done twice, keep the ids in your database.
const done = new Set();

const server = createServer(async (request, response) => {
  let payload;
  try {
    payload = verify(await text(request), request.headers, ORC_SECRET);
  } catch (error) {
    return response.writeHead(401).end(error.message);
  }
  const id = request.headers['webhook-id'];
  if (!done.has(id)) {
    done.add(id);
    console.log(id, JSON.stringify(payload));
  }
  // A JSON object in the answer is the result of the run.
  response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ received: id }));
});
server.listen(Number(PORT), '127.0.0.1', () => {
  console.log(`Listening on http://127.0.0.1:${server.address().port}/`);
});
