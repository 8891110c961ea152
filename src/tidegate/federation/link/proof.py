"""Each end of a link proves to the other that it knows their secret, and neither says it.

    a dials b      open       its name, whom it wants, a number that is used once
    b to a         challenge  a number of its own
    a to b         proof      HMAC-SHA256 of the secret over both names, both numbers, and which end it is
    b to a         welcome    the same for its own end; or refused, and why

One secret for each link, rather than an API key for each end: a bearer key that is shown to whoever answers at an
address could be used by them, and is worth more than the link. Whoever dials proves first, so that a stranger who
connects learns nothing: neither a proof to guess secrets by, nor the broker's name, nor whom it is linked to. What is
proved is bound to both names, to which end dialled and to both numbers: an answer can't be sent back to its sender, nor
used again. It is not bound to the connection. Whoever can change what is on the wire may pass the proofs on and alter
what follows: use https, and sign events at their origin.
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
from tidegate.federation.link.wire import SUBPROTOCOL, Inbox, Socket, control

_NONCE_BYTES = 24
_MOST_BYTES = 4096
"""Of what somebody may say whom nobody knows yet."""
_NONCE = re.compile(r"[A-Za-z0-9_-]{16,128}")
_STRANGER = "there is no link between {name!r} and {to!r} here, or the secret is another"
"""Whichever of these it is: a stranger does not learn how a broker is called, nor whom it knows."""


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


async def introduce(socket: Socket, me: str, neighbour: str, secret: str) -> None:
    """Prove who we are to the broker that we dialled, and see that it is who we meant."""
    inbox, mine = Inbox(socket, _MOST_BYTES), secrets.token_urlsafe(_NONCE_BYTES)
    await _send(socket, {"type": "open", "broker": me, "to": neighbour, "nonce": mine})
    theirs = _nonce(_need(await inbox.message(), "challenge", neighbour))
    if theirs == mine:
        raise FederationError(f"{neighbour} answers with our own number")
    await _send(socket, {"type": "proof", "proof": _proof(secret, "dials", me, neighbour, mine, theirs)})
    said = _need(await inbox.message(), "welcome", neighbour)
    if not _is(said.get("proof"), _proof(secret, "answers", me, neighbour, mine, theirs)):
        raise FederationError(f"whoever answered does not know the secret of the link to {neighbour!r}")


async def admit(
    socket: Socket, me: str, secret_of: Callable[[str], str | None], may_enter: Callable[[str], None]
) -> str:
    """Let in a broker that has dialled us, and give its name; whoever is refused is told why.

    `may_enter` raises where a link must not be, though its secret is right.
    """
    inbox = Inbox(socket, _MOST_BYTES)
    try:
        said = _need(await inbox.message(), "open", "whoever dialled")
        name, to, theirs = printable(str(said.get("broker"))), printable(str(said.get("to"))), _nonce(said)
        mine = secrets.token_urlsafe(_NONCE_BYTES)
        await _send(socket, {"type": "challenge", "nonce": mine})
        proof = _need(await inbox.message(), "proof", name).get("proof")
        secret = secret_of(name) if to == me else None
        if not _is(proof, _proof(secret or secrets.token_hex(), "dials", name, me, theirs, mine)) or secret is None:
            raise ProofError(_STRANGER.format(name=name, to=to))
        may_enter(name)
        await _send(socket, {"type": "welcome", "proof": _proof(secret, "answers", name, me, theirs, mine)})
    except FederationError as problem:
        loop = {"loop": list(problem.loop)} if isinstance(problem, LinkRefused) else {}
        await _send(socket, {"type": "refused", "detail": str(problem), **loop})
        raise
    return name


async def _send(socket: Socket, message: dict[str, Any]) -> None:
    for frame in control(message):
        await socket.send(frame)


def _need(said: dict[str, Any], kind: str, who: str) -> dict[str, Any]:
    if said["type"] == "refused":
        problem, loop = f"{who} refuses the link: {printable(str(said.get('detail')))}", said.get("loop")
        if isinstance(loop, list):
            raise LoopRefused(problem, tuple(printable(str(broker)) for broker in loop))
        raise FederationError(problem)
    if said["type"] != kind:
        raise FederationError(f"expected {kind!r} of {who}, not {said['type']!r:.60}")
    return said


def _nonce(said: dict[str, Any]) -> str:
    found = said.get("nonce")
    if not isinstance(found, str) or not _NONCE.fullmatch(found):
        raise FederationError("expected a nonce of 16 to 128 letters, digits, _ and -")
    return found


def _proof(secret: str, end: str, dials: str, answers: str, *nonces: str) -> str:
    said = "\n".join((SUBPROTOCOL, end, dials, answers, *nonces))
    return hmac.new(secret.encode(), said.encode(), hashlib.sha256).hexdigest()


def _is(shown: Any, expected: str) -> bool:
    return isinstance(shown, str) and hmac.compare_digest(shown.encode(), expected.encode())
