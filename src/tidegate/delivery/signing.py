"""Standard Webhooks signatures: a receiver with the secret can verify origin, content and time of a message."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence

PREFIX = "whsec_"


def signature(secret: str, id_: str, timestamp: int, body: bytes) -> str:
    """Return the signature of a message with one secret.

    >>> signature("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD", "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk", 1649367553,
    ...           b'{"email":"test@example.com","username":"test_user"}')
    'v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw='
    """
    key = base64.b64decode(secret.removeprefix(PREFIX))
    signed = hmac.new(key, b"%s.%d.%s" % (id_.encode(), timestamp, body), hashlib.sha256)
    return "v1," + base64.b64encode(signed.digest()).decode()


def headers(secrets: Sequence[str], id_: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Return the headers of a message, signed with every secret: a receiver may still have an old one."""
    return {
        "webhook-id": id_,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(signature(secret, id_, timestamp, body) for secret in secrets),
    }


def message_id(subscription: str, records: Sequence[bytes]) -> str:
    """Return the id of a message with the events of some records of the log.

    The same events have the same id, whichever gateway sends them, and from whichever cursor it reads. Other events
    have another id: a receiver that skips an id that it knows skips no new event.

    >>> message_id("sub_1", [b"{}"]) == message_id("sub_1", [b"{}"])
    True
    """
    digest = hashlib.sha256(subscription.encode("utf-8", "surrogatepass"))
    for record in records:
        digest.update(b" %d " % len(record) + record)
    return "msg_" + digest.hexdigest()[:32]
