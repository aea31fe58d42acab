import base64, hashlib, hmac, json, time


def verify(body, headers, secret):
    """Raises unless the request is from orc. The body is bytes; the headers' names are in lower case."""
    message_id, timestamp = headers["webhook-id"], headers["webhook-timestamp"]
    if abs(time.time() - int(timestamp)) > 300:
        raise ValueError("too old or too new")
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{message_id}.{timestamp}.".encode() + body
    expected = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    signatures = headers["webhook-signature"].split(" ")
    if not any(hmac.compare_digest(each, expected) for each in signatures):
        raise ValueError("wrong signature")
    return json.loads(body)
