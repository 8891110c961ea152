"""Events that an HTTP endpoint of others returns, asked again and again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tidegate.model import units
from tidegate.services.findings import Spot
from tidegate.services.sources.declaration import CONNECTION, SourceDeclaration
from tidegate.services.sources.event_format import KEYS, TEXT_FORMATS, EventFormat, TextFormat, read_event_format

MIN_EVERY_S = 0.1
MAX_EVERY_S = 86_400.0


@dataclass(frozen=True)
class Poll(EventFormat):
    """Events of the responses to GET requests. An event that the response before had, too, is not appended again."""

    url: str
    """With http or https; with a connection, a path below its URL."""
    every: str = "10s"
    """The time between two requests."""
    items: str = ""
    """Where the events are in a JSON response: keys with dots, such as `data.vehicles`. Empty: it is them itself."""
    connection: str | None = None
    """A connection of the profile: the URL that `url` is below, and a token."""
    format: TextFormat = "json"

    @property
    def every_s(self) -> float:
        """The time between two requests in seconds."""
        return units.seconds(self.every) or MAX_EVERY_S


def _read(spot: Spot) -> Poll:
    if not isinstance(spot.value, Mapping):
        return Poll(_url(spot, has_connection=False))
    spots = spot.entries(("url", "every", "items", "connection", "format", *KEYS), "a URL")
    settings: dict[str, Any] = read_event_format(spots)
    if "connection" in spots:
        settings["connection"] = spots["connection"].text(CONNECTION)
    if "every" in spots:
        settings["every"] = spots["every"].text("a length of time such as 10s")
        if not MIN_EVERY_S <= (units.seconds(settings["every"]) or 0) <= MAX_EVERY_S:
            spots["every"].refuse("a length of time from 100ms to 1d, such as 10s")
    if "items" in spots:
        settings["items"] = spots["items"].text("keys with dots, such as data.vehicles")
    if "format" in spots:
        settings["format"] = spots["format"].choice(TEXT_FORMATS)
    return Poll(_url(spots.get("url", spot.at("url", None)), has_connection="connection" in spots), **settings)


def _url(spot: Spot, *, has_connection: bool) -> str:
    what = "a path below the URL of the connection" if has_connection else "a URL such as https://example.com/gps.json"
    text = spot.text(what)
    try:
        parts = urlsplit(text)
        is_absolute = parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
        is_path = not parts.scheme and not parts.netloc and ".." not in parts.path.split("/")
    except ValueError:
        is_absolute = is_path = False
    is_plain = text.isascii() and text.isprintable() and " " not in text and "#" not in text
    if text and not (is_plain and (is_path if has_connection else is_absolute)):
        spot.refuse(what)
    return text


DECLARATION = SourceDeclaration("poll", Poll, _read, "url", has_connection=True, address_fields=("url",))
