"""Ids of events as those see them who may not see what the ids are made of."""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass, field
from functools import cached_property

_DIGITS = 32
"""Hexadecimal digits of a hashed id: 128 bits, so that no two events have the same one."""


@dataclass(frozen=True)
class HashedIds:
    """Hashes ids with a secret key, always to the same text, so that clients still tell events apart by them.

    Ids that Tidegate itself gave to events of raw streams reveal nothing, and stay unchanged.

    >>> ids = HashedIds(b"secret", frozenset({"gps"}))
    >>> ids.render("gps:0:4096"), ids.render("B7@2026-01-01T00:01:00Z")
    ('gps:0:4096', '2d7614764f01ccf362cf2cd5a2d0e1f3')
    """

    key: bytes = field(repr=False)
    streams: frozenset[str]
    """The raw streams that events come from."""

    def render(self, id_: str) -> str:
        """Return an id in the form for the wire."""
        if self._given_here.fullmatch(id_):
            return id_
        return hmac.new(self.key, id_.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:_DIGITS]

    @cached_property
    def _given_here(self) -> re.Pattern[str]:
        return re.compile(rf"(?:{'|'.join(map(re.escape, sorted(self.streams)))}):[0-9]+:[0-9]+")
