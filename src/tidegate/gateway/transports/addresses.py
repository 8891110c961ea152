"""Checks the addresses of webhooks: only public ones, and the check is made on the address that is connected to."""

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
"""DNS threads of all webhooks. A consumer may name a host with slow name servers, so nothing else uses them."""

_NAT64 = IPv6Network("64:ff9b::/96")


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(DNS_THREADS, "dns")


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """True if an address is public. An IPv4 address embedded in an IPv6 address is checked itself.

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
    """Return the addresses of a host. Raises a `WebhookError` if there are none, or one of them is not public.

    A single private address refuses the host, because the order of addresses is random.
    """
    loop, ask = asyncio.get_running_loop(), partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        async with asyncio.timeout(DNS_TIMEOUT_S):
            entries = await loop.run_in_executor(_threads(), ask)
    except TimeoutError:
        raise WebhookError(f"the host {host!r} can't be found: its name servers take too long") from None
    except (OSError, UnicodeError) as error:
        raise WebhookError(f"the host {host!r} can't be found: {error}") from error
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in entries))
    for address in addresses:
        if not allow_private and not is_public(ip_address(address.partition("%")[0])):
            raise WebhookError(
                f"the host {host!r} has the address {address}, which is not public: expected one that is"
            )
    return addresses


class CheckedBackend(httpcore.AsyncNetworkBackend):
    """Connects to the address that was checked. A second DNS lookup could return another one (DNS rebinding)."""

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
        """Connect to the first address that accepts. Raises the error of the last one if none does."""
        problem: Exception = WebhookError(f"the host {host!r} has no address")
        for address in await resolve(host, port, allow_private=self._allow_private):
            try:
                return await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                problem = error
        raise problem

    async def sleep(self, seconds: float) -> None:
        """Sleep; called by httpcore between retries."""
        await self._inner.sleep(seconds)
