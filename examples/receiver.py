"""A receiver of deliveries and events: ORC_SECRET=whsec_… python3 receiver.py"""

import json, os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from verify import verify

# A delivery that is tried again has the same id. Where it must not be done twice, keep the ids in your database.
done = set()


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            payload = verify(body, headers, os.environ["ORC_SECRET"])
        except (ValueError, KeyError) as error:
            return self.answer(401, {"error": str(error)})
        message_id = headers["webhook-id"]
        if message_id not in done:
            done.add(message_id)
            print(message_id, json.dumps(payload), flush=True)
        # A JSON object in the answer is the result of the run.
        self.answer(200, {"received": message_id})

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8080"))), Receiver)
print(f"Listening on http://127.0.0.1:{server.server_port}/", flush=True)
server.serve_forever()
