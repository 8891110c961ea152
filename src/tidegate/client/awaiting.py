"""The API for programs that await."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import httpx

from tidegate.client import durable, http, links
from tidegate.client.course import Course, Reconnect, Wanted
from tidegate.client.errors import ConnectionLost, Missed
from tidegate.client.http import Asked, Since
from tidegate.client.publishing import Mode, Publishing, Sent
from tidegate.client.tls import Cert, Verify
from tidegate.client.values import Event, Format, Notice, Page, Receipt, page
from tidegate.client.watching import Watching
from tidegate.errors import ClientError

if TYPE_CHECKING:
    from tidegate.filters import Filter


class AsyncClient:
    """A gateway, asked over HTTP.

    Use it in an `async with`, or close it. Tasks may share it; a subscription belongs to one task.
    """

    def __init__(
        self,
        url: str = http.URL,
        *,
        key: str | None = None,
        timeout_s: float = 30.0,
        reconnect: Reconnect = Reconnect(),  # noqa: B008 - a frozen value
        verify: Verify = True,
        cert: Cert = None,
    ) -> None:
        """`key`: an API key, sent as a bearer token. `reconnect`: how subscriptions come back.

        Of an https URL: `verify` is the PEM file of the authorities to trust, or False; `cert` is our own
        certificate and its key, as PEM files.
        """
        self.url = http.checked_url(url)
        self._timeout_s, self._reconnect = timeout_s, reconnect
        self._http = httpx.AsyncClient(
            base_url=self.url,
            headers=http.headers(key),
            timeout=timeout_s,
            limits=httpx.Limits(max_connections=None),  # each subscription holds one
            verify=http.verification(self.url, verify, cert),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def services(self) -> list[dict[str, Any]]:
        """All services, each with its definition, version, schema and status."""
        found: list[dict[str, Any]] = (await self._ask(Asked("GET", "/v1/services")))["services"]
        return found

    async def service(self, name: str) -> dict[str, Any]:
        """One service."""
        return await self._ask(Asked("GET", http.service_path(name)))

    async def status(self, name: str) -> dict[str, Any]:
        """How a service does, and how many subscribe to it."""
        return await self._ask(Asked("GET", http.service_path(name, "status")))

    async def discover(self, **request: Any) -> dict[str, Any]:
        """Find services: `attributes`, `filter`, `themes`, `qos` and what else a request has; the best first.

        The answer has `results`, and `hints` where nothing or little fits: see docs/spec/discovery.md.
        """
        return await self._ask(http.discover(request))

    async def watch(self, *, used: str | None = None, **request: Any) -> AsyncIterator[dict[str, Any]]:
        """Find services, and go on: first the whole answer, then what `appeared`, `changed`, `left` or is `better`.

        Each has its `kind`: `answer` or `changes`. After a lost connection comes an answer again. `used` is the
        service that one has, which others are to be better than.
        """
        watching = Watching(self._reconnect, random.random)
        while True:
            try:
                async with aclosing(await self._open(http.discover(request, watch=True, used=used))) as answer:
                    async for data in answer.aiter_raw():
                        for each in watching.feed(data):
                            yield each
            except (ClientError, httpx.TransportError) as error:
                watching.failed(error)
            await asyncio.sleep(watching.pause_s())

    async def quarantine(
        self,
        service: str,
        *,
        rule: str | None = None,
        since: Since | None = None,
        replayed: bool | None = None,
        cursor: str | None = None,
        most: int = 100,
    ) -> dict[str, Any]:
        """A page of what a service has refused, and why: `quarantined`, `cursor`, `more`."""
        return await self._ask(http.quarantine_of(service, rule, since, replayed, cursor, most))

    async def replay(self, service: str, said: Mapping[str, Any], *, mode: Mode = "all") -> dict[str, Any]:
        """Send what a service has refused again: `{"events": [...]}` or `{"all": {...}}`, as the API has it."""
        return await self._ask(http.replay_of(service, said, mode))

    async def apply(
        self, files: str | Mapping[str, str], *, force: bool = False, prune: bool = False, backfill: bool = False
    ) -> dict[str, dict[str, int]]:
        """Apply service files, all or nothing: their texts by name, or one text. Needs a provider's key.

        Gives the names that were `added`, `changed`, `unchanged` and `removed`, each with its version. `prune`
        removes what the files do not name; `force` and `backfill` as for `tidegate apply`.
        """
        return await self._ask(http.apply(files, force=force, prune=prune, backfill=backfill))

    async def publish(
        self, stream: str, events: Iterable[Sent] | Sent, *, mode: Mode = "all", batch: int = 500
    ) -> Receipt:
        """Put events into a raw stream, some at a time; they are in the log when this returns.

        An event is a mapping of attributes, or a JSON object as bytes or text; one alone needs no list.
        In mode `all` the first batch with an event that does not fit is a `PublishError`, and
        nothing of this batch is taken; with `partial` only such events are left out, and the
        receipt names them. A batch that the gateway can't take now is sent again; one of which
        nobody knows whether it was taken only if all its events have an `_id`.
        """
        publishing = Publishing(stream, events, mode, batch)
        for each in publishing.batches():
            while True:
                try:
                    said = await self._ask(publishing.request(each))
                except ClientError as error:
                    await asyncio.sleep(publishing.wait_s(each, error))
                else:
                    publishing.took(each, said)
                    break
        return publishing.receipt

    async def events(
        self,
        service: str,
        filter: str | Filter | None = None,  # noqa: A002 - the API's word
        *,
        params: Sequence[Any] = (),
        cursor: str | None = None,
        since: Since | None = None,
        latest: str | None = None,
        select: str | Sequence[str] | None = None,
        wait: float = 0.0,
        most: int = 1_000,
        format: Format = "cloudevents",  # noqa: A002 - the API's word
        every: float | None = None,
        key: str | None = None,
    ) -> Page:
        """A page of events from a place on; where there is none, wait so many seconds for one.

        With `every` it has just the latest of each `key`, and one that may wait gathers for so many seconds.
        """
        asked = http.page_of(service, filter, params, cursor, since, latest, select, wait, most, format, every, key)
        return page(await self._ask(asked), format)

    def subscribe(
        self,
        service: str,
        filter: str | Filter | None = None,  # noqa: A002 - the API's word
        *,
        params: Sequence[Any] = (),
        cursor: str | None = None,
        since: Since | None = None,
        latest: str | None = None,
        select: str | Sequence[str] | None = None,
        format: Format = "cloudevents",  # noqa: A002 - the API's word
        every: float | None = None,
        key: str | None = None,
        idle: float | None = None,
        on_notice: Callable[[Notice], None] | None = None,
    ) -> AsyncSubscription:
        """Events as they come, from a cursor, or since a moment, on; see `AsyncSubscription`.

        `since` is now unless told. `latest`: of what is there already just the newest event of each value of this
        attribute, then all. `every`: at most the latest event of each value of the attribute `key` in so many seconds.
        `idle`: a notice when nothing has come for so many seconds. `on_notice` is called with
        notices; without it a gap is raised as `Missed`, and all others pass.
        """
        wanted = Wanted.of(service, filter, params, cursor, since, latest, select, format, every, key, idle)
        course = Course(wanted, self._reconnect, on_notice, random.random, time.monotonic)
        return AsyncSubscription(self, course)

    # Durable subscriptions ---------------------------------------------------------------

    async def subscriptions(self, service: str) -> list[dict[str, Any]]:
        """The durable subscriptions of a service that one may see."""
        found: list[dict[str, Any]] = (await self._ask(Asked("GET", http.service_path(service, "subscriptions"))))[
            "subscriptions"
        ]
        return found

    async def subscription(self, id: str) -> dict[str, Any]:  # noqa: A002 - the API's word
        """A durable subscription as it is now."""
        return await self._ask(Asked("GET", durable.path(id)))

    async def create_subscription(
        self,
        service: str,
        filter: str | Filter | None = None,  # noqa: A002 - the API's word
        *,
        params: Sequence[Any] = (),
        webhook: str | Mapping[str, Any] | None = None,
        cursor: str | None = None,
        since: Since | None = None,
        select: str | Sequence[str] | None = None,
        format: Format = "cloudevents",  # noqa: A002 - the API's word
        every: float | None = None,
        key: str | None = None,
        idle: float | None = None,
        description: str = "",
    ) -> dict[str, Any]:
        """Make a durable subscription, which is consumed with `consume` or delivered by `webhook`; its `id` is in it.

        `webhook` is a URL, or a mapping with `url`, `batch` and `handshake`; its secret is in the answer, this once.
        """
        asked = durable.make(
            service, filter, params, webhook, cursor, since, select, format, every, key, idle, description
        )
        return await self._ask(asked)

    async def change_subscription(self, id: str, *, version: int | None = None, **fields: Any) -> dict[str, Any]:  # noqa: A002
        """Change fields of a durable subscription; all who consume it go on with them at once.

        Fields are those of `create_subscription` but `cursor` and `since`; None is a field's default. With a `version`
        it is refused where somebody else has changed it meanwhile.
        """
        return await self._ask(durable.change(id, version, fields))

    async def delete_subscription(self, id: str) -> None:  # noqa: A002 - the API's word
        """Remove a durable subscription; whoever consumes it is told."""
        await self._ask(durable.remove(id))

    async def links(self) -> dict[str, Any]:
        """The name of the gateway's broker, and all its links to others."""
        return await self._ask(links.all_())

    async def add_link(
        self,
        name: str,
        url: str | None = None,
        secret: str | None = None,
        services: Sequence[str] | None = None,
        *,
        transit: Sequence[str] = (),
        public: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Link the broker to another, which has the same secret; with no URL the other dials.

        `services`: all that the other may see, at the most. `transit`: other brokers whose services it may pass on,
        `*` for any. `public`: services of it that guests may read if their origin says so, `*` for any.
        """
        return await self._ask(links.add(name, url, secret, services, transit, public))

    async def change_link(
        self, name: str, *, transit: Sequence[str] | None = None, public: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """Change what is believed of a neighbour, see `add_link`; None leaves a setting as it is."""
        return await self._ask(links.change(name, transit, public))

    async def trust_origin(self, origin: str, keys: str) -> dict[str, Any]:
        """Pin the public keys of a broker, a JWK set as text: what these have not signed is refused."""
        return await self._ask(links.trust(origin, keys))

    async def distrust_origin(self, origin: str) -> None:
        """Remove the pinned keys of a broker: its events need no signature any more."""
        await self._ask(links.distrust(origin))

    async def remove_link(self, name: str) -> None:
        """Remove a link."""
        await self._ask(links.remove(name))

    async def enable_subscription(self, id: str) -> dict[str, Any]:  # noqa: A002 - the API's word
        """Deliver a disabled subscription again, from its cursor on."""
        return await self._ask(Asked("POST", durable.path(id, "enable")))

    async def renew_subscription(self, id: str) -> dict[str, Any]:  # noqa: A002 - the API's word
        """Deliver a webhook by what the caller's token says now, and for longer."""
        return await self._ask(Asked("POST", durable.path(id, "renew")))

    async def adopt_subscription(self, id: str, owner: str | None = None) -> dict[str, Any]:  # noqa: A002 - the API's word
        """Make the caller, or an API key by its id, the owner of a durable subscription; for admins."""
        return await self._ask(durable.adopt(id, owner))

    async def explain(self, id: str, event: Mapping[str, Any] | str | None = None) -> dict[str, Any]:  # noqa: A002
        """What a durable subscription's filter means, and why an event (or its id) matches or not."""
        return await self._ask(durable.explain(id, event))

    async def dead_letters(self, id: str, *, after: int = 0, most: int = 100) -> list[dict[str, Any]]:  # noqa: A002
        """What a webhook could not be given, the oldest first."""
        found: list[dict[str, Any]] = (await self._ask(durable.dead_letters(id, after, most)))["dead_letters"]
        return found

    async def redeliver(self, id: str, ids: Sequence[int] | Literal["all"] = "all") -> dict[str, Any]:  # noqa: A002
        """Send dead letters once more, now: which are `delivered`, `failed` and `untried`."""
        return await self._ask(durable.redeliver(id, ids))

    def consume(
        self,
        id: str,  # noqa: A002 - the API's word
        *,
        auto_ack: bool = True,
        latest: str | None = None,
        on_notice: Callable[[Notice], None] | None = None,
    ) -> AsyncSubscription:
        """Events of a durable subscription from its cursor on; see `AsyncSubscription`.

        With `auto_ack` an event counts as dealt with when the next is asked for, and is acknowledged soon; when a
        `with` ends without an error, so is the last. Without, acknowledge with `ack`. What was not acknowledged
        comes again. `latest`: of what waits, just the newest event of each value of this attribute.
        """
        wanted = Wanted.of_durable(id, latest, acks=auto_ack)
        course = Course(wanted, self._reconnect, on_notice, random.random, time.monotonic)
        return AsyncSubscription(self, course)

    # HTTP ------------------------------------------------------------------------------

    async def _ask(self, asked: Asked) -> dict[str, Any]:
        try:
            answer = await self._http.send(self._request(asked, self._timeout_s + asked.wait_s))
        except httpx.TransportError as error:
            raise http.failed(self.url, error) from error
        return http.document(answer)

    async def _open(self, asked: Asked) -> httpx.Response:
        """An answer whose body is still to be read, if it is what was wanted."""
        try:
            answer = await self._http.send(self._request(asked, self._reconnect.silence_s), stream=True)
            if answer.status_code != 200:
                await answer.aread()
        except httpx.TransportError as error:
            raise http.failed(self.url, error) from error
        wrong = http.problem(answer) if answer.status_code != 200 else http.not_a_stream(answer)
        if wrong is not None:
            await answer.aclose()
            raise wrong
        return answer

    def _request(self, asked: Asked, read_s: float) -> httpx.Request:
        return http.request(self._http, asked, self._timeout_s, read_s)


class AsyncSubscription:
    """Events of a service, one after the other, for as long as one asks.

    A connection that is lost is made again, with growing waits, and goes on behind the
    last event: nothing is missed, nothing comes twice. What won't become better by itself
    is raised. Inside an `async with` it is connected from the start on; leaving closes it. One of
    `consume` is durable: what was not acknowledged comes again another time.
    """

    def __init__(self, client: AsyncClient, course: Course) -> None:
        self._client, self._course = client, course
        self._answer: httpx.Response | None = None
        self._bytes: AsyncIterator[bytes] | None = None
        self._is_closed = False

    @property
    def cursor(self) -> str | None:
        """Behind the last event that was given: keep it, to go on there another time. None: nowhere yet."""
        return self._course.cursor

    async def __aenter__(self) -> Self:
        try:
            while self._answer is None:
                await self._connect()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._course.finish()
        await self.close()
        with suppress(ClientError):  # else it comes again
            await self._acknowledge(self._course.ack_rest())

    async def ack(self, what: Event | str | None = None) -> None:
        """Acknowledge all up to an event or a cursor, or all that was given; it is stored when this returns."""
        await self._client._ask(self._course.ack(what))
        self._course.acked()

    async def _acknowledge(self, asked: Asked | None) -> None:
        if asked is not None:
            try:
                await self._client._ask(asked)
                self._course.acked()
            except ClientError as error:
                self._course.not_acked(error)

    async def close(self) -> None:
        """Let go of the connection; there are no more events."""
        self._is_closed = True
        await self._hang_up()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._is_closed:
            try:
                await self._acknowledge(self._course.ack_due())
                found = self._course.next()
                if found is not None:
                    return found
                await self._go_on()
            except Missed:
                raise
            except ClientError:
                await self.close()
                raise
            except BaseException:  # whoever asks again comes back, behind the last event
                await self._hang_up()
                raise
        raise StopAsyncIteration

    async def _go_on(self) -> None:
        if self._answer is None or self._bytes is None:
            await self._connect()
            return
        try:
            self._course.feed(await anext(self._bytes))
        except StopAsyncIteration:
            await self._lose(ConnectionLost(f"{self._client.url} has ended the connection"))
        except httpx.TransportError as error:
            await self._lose(http.failed(self._client.url, error))

    async def _connect(self) -> None:
        asked = self._course.request()
        try:
            if self._course.wants_place:
                self._course.placed(await self._client._ask(asked))
                return
            self._answer = await self._client._open(asked)
        except ClientError as error:
            await self._lose(error)
            return
        self._bytes = self._answer.aiter_bytes()
        self._course.opened()

    async def _lose(self, error: ClientError) -> None:
        await self._hang_up()
        await asyncio.sleep(self._course.lost(error))

    async def _hang_up(self) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            await answer.aclose()
