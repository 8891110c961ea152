"""Mutual authentication of a link: both ends prove that they know the shared secret, without sending it.

    a dials b      open       the name of a, the name of b, a nonce of a
    b to a         challenge  a nonce of b
    a to b         proof      HMAC-SHA256, keyed with the secret, of both names, both nonces and the role of a
    b to a         welcome    the same for the role of b; or `refused` with a reason

Each link has a secret of its own, instead of an API key for each end. A bearer key would be sent to any server that
answers at an address, which could then use it, and it allows more than the link does.

The dialling end proves its identity first. So a stranger that connects learns neither the name of the broker nor those
of its neighbours, and gets no proof with which it could test guesses of the secret.

A proof is bound to both names, to the role and to both nonces, so it can't be reflected or replayed. It is not bound to
the connection: an attacker that can change the traffic may relay the proofs and alter the messages after them. Use
https, and sign events at their origin.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from typing import Any

from tidegate.errors import FederationError, LinkRefused
from tidegate.federation.link.bounds import printable
from tidegate.federation.link.wire import SUBPROTOCOL, Inbox, LinkSocket, control

_NONCE_BYTES = 24
_MAX_MESSAGE_BYTES = 4096
"""Size of a message from an end that is not authenticated yet."""
_NONCE = re.compile(r"[A-Za-z0-9_-]{16,128}")
_UNAUTHENTICATED = "there is no link between {name!r} and {to!r} here, or the secrets differ"
"""The same text in all cases, so that a stranger learns neither the broker's name nor its neighbours."""


class ProofError(FederationError):
    """The dialling broker has not proved that it is the neighbour that it claims to be."""


class LoopRefused(FederationError):  # noqa: N818 - reads as the state it reports
    """The dialled neighbour refused the link because it would close a loop."""

    def __init__(self, message: str, loop: tuple[str, ...]) -> None:
        super().__init__(message)
        self.loop = loop
        """Names of the brokers on the loop, as the neighbour sent them; the neighbour is first and last."""

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.loop)


async def introduce(socket: LinkSocket, me: str, neighbour: str, secret: str) -> None:
    """Authenticate both ends on a connection that we dialled.

    Raises `LoopRefused` if the neighbour refuses the link because of a loop, another `FederationError` if it refuses
    for another reason or fails to prove its identity, and `LinkClosed` if the connection ends.
    """
    inbox, mine = Inbox(socket, _MAX_MESSAGE_BYTES), secrets.token_urlsafe(_NONCE_BYTES)
    await _send(socket, {"type": "open", "broker": me, "to": neighbour, "nonce": mine})
    theirs = _nonce(_expect(await inbox.message(), "challenge", neighbour))
    if theirs == mine:
        raise FederationError(f"{neighbour} answers with our own nonce")
    await _send(socket, {"type": "proof", "proof": _proof(secret, "dials", me, neighbour, mine, theirs)})
    welcome = _expect(await inbox.message(), "welcome", neighbour)
    if not _is_equal(welcome.get("proof"), _proof(secret, "answers", me, neighbour, mine, theirs)):
        raise FederationError(f"the server that answered does not know the secret of the link to {neighbour!r}")


async def admit(
    socket: LinkSocket, me: str, secret_of: Callable[[str], str | None], may_enter: Callable[[str], None]
) -> str:
    """Authenticate both ends on a connection that a neighbour dialled. Returns the neighbour's name.

    `secret_of` returns the secret of the link to a broker, or None. `may_enter` is called with the authenticated name
    and raises a `FederationError` if the link is not allowed now. Every `FederationError` is sent to the neighbour as
    the reason of the refusal, and raised again; `ProofError` if the neighbour is not authenticated.
    """
    inbox = Inbox(socket, _MAX_MESSAGE_BYTES)
    try:
        opening = _expect(await inbox.message(), "open", "the client that dialled")
        name, to, theirs = printable(str(opening.get("broker"))), printable(str(opening.get("to"))), _nonce(opening)
        mine = secrets.token_urlsafe(_NONCE_BYTES)
        await _send(socket, {"type": "challenge", "nonce": mine})
        proof = _expect(await inbox.message(), "proof", name).get("proof")
        secret = secret_of(name) if to == me else None
        # An unknown broker is compared with a random secret, so that it takes the same time.
        expected = _proof(secret or secrets.token_hex(), "dials", name, me, theirs, mine)
        if not _is_equal(proof, expected) or secret is None:
            raise ProofError(_UNAUTHENTICATED.format(name=name, to=to))
        may_enter(name)
        await _send(socket, {"type": "welcome", "proof": _proof(secret, "answers", name, me, theirs, mine)})
    except FederationError as problem:
        loop = {"loop": list(problem.loop)} if isinstance(problem, LinkRefused) else {}
        await _send(socket, {"type": "refused", "detail": str(problem), **loop})
        raise
    return name


async def _send(socket: LinkSocket, message: dict[str, Any]) -> None:
    for frame in control(message):
        await socket.send(frame)


def _expect(message: dict[str, Any], type_: str, sender: str) -> dict[str, Any]:
    """Return a message if it has the expected type. Raises a `FederationError` if not, or if it is a refusal."""
    if message["type"] == "refused":
        problem, loop = f"{sender} refuses the link: {printable(str(message.get('detail')))}", message.get("loop")
        if isinstance(loop, list):
            raise LoopRefused(problem, tuple(printable(str(broker)) for broker in loop))
        raise FederationError(problem)
    if message["type"] != type_:
        raise FederationError(f"expected {type_!r} of {sender}, not {message['type']!r:.60}")
    return message


def _nonce(message: dict[str, Any]) -> str:
    nonce = message.get("nonce")
    if not isinstance(nonce, str) or not _NONCE.fullmatch(nonce):
        raise FederationError("expected a nonce of 16 to 128 letters, digits, _ and -")
    return nonce


def _proof(secret: str, role: str, dials: str, answers: str, *nonces: str) -> str:
    text = "\n".join((SUBPROTOCOL, role, dials, answers, *nonces))
    return hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()


def _is_equal(proof: Any, expected: str) -> bool:
    return isinstance(proof, str) and hmac.compare_digest(proof.encode(), expected.encode())
