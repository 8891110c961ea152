"""Decides who sees raw streams, and who may append to them."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.errors import NotRegistered, did_you_mean
from tidegate.gateway.auth.audience import admits, is_among, is_in_scope, need_scope
from tidegate.gateway.auth.callers import Caller
from tidegate.gateway.http.problems import forbidden
from tidegate.services import Stream
from tidegate.services.definitions import NONE


class StreamPolicies:
    """The access policies of all raw streams. An instance never changes."""

    def __init__(self, streams: Mapping[str, Stream] = NONE) -> None:
        self._streams = streams

    def exists(self, name: str) -> bool:
        """True if there is a raw stream of this name, whether or not a caller may see it."""
        return name in self._streams

    def sees(self, caller: Caller, name: str) -> bool:
        """True if a caller may read the definition of a raw stream and, as a provider, define services over it."""
        stream = self._streams.get(name)
        if stream is None or not is_in_scope(caller, name) or not caller.may("read"):
            return False
        return caller.may("operate") or admits(stream.access.to, caller)

    def may_append(self, caller: Caller, name: str) -> bool:
        """True if a caller may append events to a raw stream."""
        stream = self._streams.get(name)
        if stream is None or not is_in_scope(caller, name) or not caller.may("append"):
            return False
        if caller.may("operate"):
            return True
        if stream.access.publish is not None:
            return is_among(caller, stream.access.publish)
        # A key of a publisher is created for the streams that it names.
        return self.sees(caller, name) if caller.may("define") else caller.services is not None

    def knows(self, caller: Caller, name: str) -> bool:
        """True if a caller may know that a raw stream exists: they see it, or may append to it."""
        return self.sees(caller, name) or self.may_append(caller, name)

    def need(self, caller: Caller, name: str) -> None:
        """Raise `NotRegistered`, or a `Problem` (403), unless a caller may know that a raw stream exists."""
        if self.knows(caller, name):
            return
        need_scope(caller, name)
        visible = [stream for stream in self._streams if self.knows(caller, stream)]
        raise NotRegistered(f"no stream {name!r}{did_you_mean(name, visible)}")

    def need_append(self, caller: Caller, name: str) -> None:
        """Raise `NotRegistered`, or a `Problem` (403), unless a caller may append to a raw stream."""
        if self.may_append(caller, name):
            return
        need_scope(caller, name)
        if caller.services is None and not caller.may("define") and not self.knows(caller, name):
            detail = f"{caller.told} names no streams: a publisher puts events only into those that it is for"
            raise forbidden(detail)
        self.need(caller, name)
        detail = f"{caller.told} may not put events into {name!r}: access.publish of the stream names others"
        raise forbidden(detail)
