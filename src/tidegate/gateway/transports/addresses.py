"""Where the gateway may connect to on a consumer's word: to public addresses, checked when it connects."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any

import httpcore

from tidegate.errors import WebhookError

DNS_TIMEOUT_S = 10.0
DNS_THREADS = 4
"""Of all webhooks: whoever names a host chooses how long its name servers take. Nothing else waits for these."""

_NAT64 = IPv6Network("64:ff9b::/96")


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(DNS_THREADS, "dns")


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether an address is one of the Internet at large, also where an IPv4 address hides in it.

    >>> is_public(ip_address("93.184.216.34")), is_public(ip_address("::ffff:127.0.0.1"))
    (True, False)
    """
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in _NAT64:
            inner = IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
        if address.teredo is not None or address.is_site_local:
            return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


async def resolve(host: str, port: int, *, allow_private: bool) -> list[str]:
    """The addresses of a host, all of them fit to be connected to.

    One that is not refuses the host: which of its addresses is tried first is chance.
    """
    loop, ask = asyncio.get_running_loop(), partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        async with asyncio.timeout(DNS_TIMEOUT_S):
            found = await loop.run_in_executor(_threads(), ask)
    except TimeoutError:
        raise WebhookError(f"the host {host!r} can't be found: its name servers take too long") from None
    except (OSError, UnicodeError) as error:
        raise WebhookError(f"the host {host!r} can't be found: {error}") from error
    addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
    for each in addresses:
        if not allow_private and not is_public(ip_address(each.partition("%")[0])):
            raise WebhookError(f"the host {host!r} has the address {each}, which is not public: expected one that is")
    return addresses


class CheckedBackend(httpcore.AsyncNetworkBackend):
    """Connects to the very address that was checked: a name that is resolved again may say another."""

    def __init__(self, *, allow_private: bool) -> None:
        self._allow_private = allow_private
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the protocol's
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first address that answers."""
        problem: Exception = WebhookError(f"the host {host!r} has no address")
        for each in await resolve(host, port, allow_private=self._allow_private):
            try:
                return await self._inner.connect_tcp(each, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                problem = error
        raise problem

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await self._inner.sleep(seconds)
