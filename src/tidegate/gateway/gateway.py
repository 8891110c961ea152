"""What the gateway knows: the log, the registry, who subscribes, and how services are."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import structlog
from starlette.requests import HTTPConnection

from tidegate.delivery.hub import Hub
from tidegate.discovery import kernels as searching
from tidegate.errors import LogError, NotRegistered, error_text
from tidegate.federation.link import LinkSettings, Remote
from tidegate.filters.meaning import Semantics
from tidegate.gateway import outbox
from tidegate.gateway.audit import Audit, AuditWriter
from tidegate.gateway.callers import Callers, caller_of
from tidegate.gateway.certificates import Certificates
from tidegate.gateway.connections import Connections
from tidegate.gateway.durable import Durable, DurableSettings
from tidegate.gateway.executors import Executors
from tidegate.gateway.finder import Finder
from tidegate.gateway.ingest import Ingesting, IngestWorker
from tidegate.gateway.linked import Linked
from tidegate.gateway.metrics import Metrics
from tidegate.gateway.oidc import Issuer
from tidegate.gateway.origins import checked
from tidegate.gateway.outbox import Outbox
from tidegate.gateway.policy import Policies, View
from tidegate.gateway.quotas import CallerPace, Meter, share
from tidegate.gateway.settings import AccessSettings, LimitSettings
from tidegate.gateway.sign_ins import SignIns
from tidegate.gateway.sweep import Sweep
from tidegate.gateway.tls import ServerTls
from tidegate.gateway.tracing import Tracing
from tidegate.logs import Cursor, EventLog
from tidegate.matching import kernels, meaning_kernels
from tidegate.model import Schema, timestamps
from tidegate.registry import RegisteredSubscription, Registry
from tidegate.semantics.shared import Shared
from tidegate.services import Definitions, Service, Stream, audit_stream, catalog
from tidegate.services.check import Usable, usable
from tidegate.services.keys import output_keys
from tidegate.services.trust import Resources
from tidegate.subscriptions import Subscription, Webhook
from tidegate.timing import periodic

LOOK_S = 0.25
"""Between two looks at the registry and `_status`."""
STATUS = "_status"
SILENT_S = 15.0
"""A runner tells of each service every second: after so long without a word it does not run any more."""

_log = structlog.get_logger("tidegate.gateway")


class Gateway:
    """Follows the registry, and serves what it says."""

    def __init__(
        self,
        registry: Registry,
        log: EventLog,
        ingest: Ingesting,
        statuses: Schema,
        *,
        needs_keys: bool = False,
        durable: DurableSettings | None = None,
        access: AccessSettings | None = None,
        origins: Collection[str] = (),
        tracing: Tracing | None = None,
        links: LinkSettings | None = None,
        semantics: Semantics | None = None,
        id_key: bytes | None = None,
        limits: LimitSettings | None = None,
        tls: ServerTls | None = None,
        certificates: Certificates | None = None,
        resources: Resources | None = None,
        audit_locks: Path | None = None,
        name: str = "gateway",
    ) -> None:
        """`ingest` is what appends to raw streams; `statuses` is the schema of the stream `_status`.

        `needs_keys`: nobody gets anything without an API key, or a token of an issuer that `access` names. `origins`:
        whose web pages may use it, beside its own. `tracing`: None: nothing is traced. `links`: how it is linked to
        other brokers; None: it is not. `semantics`: what filters with ~ are evaluated by; None: they are refused.
        `id_key`: what ids are hashed with for those who may not see what they are made of, the same on all gateways;
        None: a new one.
        `limits`: what one peer may ask of it.
        `tls`: None: it listens without TLS. `certificates`: who is known by a client certificate.
        `resources`: the functions, folders and connections that definitions which come by HTTP may use; None: none.
        `audit_locks`: the folder where gateways over one log of files agree on who writes which part of the audit log;
        None: there is no other. `name`: what the audit log calls this gateway.
        """
        self.resources = resources or Resources()
        self.origins = checked(origins, needs_keys=needs_keys)
        self.registry, self.log, self.ingest, self.needs_keys = registry, log, ingest, needs_keys
        self._statuses = statuses
        self.access = access = access or AccessSettings()
        self._issuer = None if access.oidc is None else Issuer(access.oidc)
        self.limits = limits or LimitSettings()
        self.connections = Connections(self.limits)
        self.meter = Meter(access.quotas, most_connections=share(self.connections.most) if needs_keys else None)
        self.executors = Executors(self.limits)
        self.tls, self.certificates = tls, certificates or Certificates(access.certificates)
        self.callers = Callers(registry, self._issuer, self.certificates, pool=self.executors.auth)
        self.audit = Audit(AuditWriter(log, name, audit_locks))
        self.sign_ins = SignIns(self.callers, self.audit, self.limits.sign_in_failures)
        self.metrics = Metrics()
        self.metrics.watch(self)
        self.tracing = tracing
        self.semantics = None if semantics is None else Shared(semantics)
        self.policies = Policies(self.semantics, id_key or secrets.token_bytes(32), needs_keys=needs_keys)
        self.policies.certificates = self.certificates
        self.linked = None if links is None else Linked(registry, log, self.policies, links, self._define)
        self.outbox = Outbox()
        """Of all sockets: what a pass writes to them goes out together."""
        if self.linked is None:
            self.hub = Hub(log, self._dispatched, together=self.outbox)
        else:
            self.hub = Hub(log, self._dispatched, self.linked.heed, self.linked, together=self.outbox)
        self.durable = Durable(
            registry,
            log,
            self.hub,
            durable or DurableSettings(),
            self.policies.encoding,
            self.metrics.sent,
            tracing,
            self._pace,
        )
        self.sweep = Sweep(registry, self.hub, self.durable, self.policies, self.sign_ins)
        self.durable.before = self.sweep.read_keys
        self.durable.obstacle = self.sweep.obstacle
        self.durable.heed = self._heed_durable
        self.finder = Finder(self.semantics)
        self.definitions = Definitions()
        self.schemas: Mapping[str, Schema] = {}
        self.versions: Mapping[str, int] = {}
        self.status: dict[str, dict[str, Any]] = {}
        """The newest event of `_status` for each service."""
        self._heard: dict[str, float] = {}
        """When that was, by the clock of `monotonic`."""
        self._revision = -1
        self._was_ready = False
        self._seen: Cursor | None = None
        self._follower: asyncio.Task[None] | None = None
        self._tls_follower: asyncio.Task[None] | None = None
        self.is_draining = False

    def _heed_durable(self, id_: str, found: RegisteredSubscription | None) -> None:
        if found is None:
            self.metrics.forget(id_)
        elif not isinstance(found.subscription.deliver, Webhook):
            self.metrics.failures.pop(id_, None)
        if self.linked is not None:
            self.linked.heed_durable(id_, found)

    def _pace(self, record: Subscription) -> CallerPace | None:
        return self.meter.pace(self.policies.owner(record))

    def _dispatched(self, service: str, seconds: float, events: Sequence[Mapping[str, Any]]) -> None:
        self.metrics.dispatched(service, seconds)
        if self.tracing is not None:
            self.tracing.dispatched(service, seconds, events)

    async def start(self) -> None:
        """Look once, then go on looking."""
        self.executors.start()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, kernels.warm_up)  # else the first event waits for it
        if self.semantics is not None:
            await loop.run_in_executor(None, meaning_kernels.warm_up)
        await loop.run_in_executor(None, searching.warm_up)
        await loop.run_in_executor(None, outbox.warm_up)
        if isinstance(self.ingest, IngestWorker):
            await self.ingest.start()
        await self.audit.start()
        await self._look_or_log()  # a gateway that can't take everything in serves what it can, and looks again
        self._follower = asyncio.create_task(self._follow())
        if self.tls is not None:
            self._tls_follower = asyncio.create_task(self.tls.follow())
        if self.linked is not None:
            await self.linked.federation.start()
        await self.sweep.start()
        await self.durable.start()
        if self.linked is not None:  # whoever needs something of others is known by now
            await self.linked.federation.open()

    def drain(self) -> None:
        """Take nobody more; whoever listens is told to come again elsewhere, or later."""
        self.is_draining = True
        self.hub.drain()

    async def close(self) -> None:
        """Let go of everybody."""
        for task in (self._follower, self._tls_follower):
            if task is not None:
                task.cancel()
        await self.sweep.close()
        await self.audit.close()
        await self.durable.close()
        if self.linked is not None:
            await self.linked.federation.close()
        await self.hub.close()
        if self._issuer is not None:
            await self._issuer.close()
        await self.ingest.close()
        if self.tracing is not None:
            await asyncio.get_running_loop().run_in_executor(None, self.tracing.close)
        self.executors.close()

    @property
    def is_ready(self) -> bool:
        """Whether every service of the registry runs, or is known to fail.

        Services that are applied to a gateway that was ready before don't make it wait: else whoever may define one
        could take every gateway out of a load balancer.
        """
        return not self.is_draining and all(map(self._is_settled, self.definitions.services))

    def _is_settled(self, name: str) -> bool:
        state, status = self.state(name), self.status.get(name, {})
        if state in ("silent", "stopped"):
            return False
        is_failing = status.get("error") is not None
        if status.get("version") != self.versions.get(name) or (state == "starting" and not is_failing):
            return self._was_ready
        return state == "running" or is_failing

    def state(self, name: str) -> str:
        """How a service is. `silent`: its runner was last heard of some time ago, and did not say that it stops."""
        said = self.status.get(name)
        if said is None:
            return "never ran"
        is_silent = said["state"] != "stopped" and time.monotonic() - self._heard[name] > SILENT_S
        return "silent" if is_silent else str(said["state"])

    def view(self, request: HTTPConnection) -> View:
        """What whoever makes a request sees."""
        return View(self.policies, self.meter, caller_of(request))

    @property
    def remotes(self) -> Mapping[str, Remote]:
        """Services of other brokers, by the names that they have here."""
        return {} if self.linked is None else self.linked.remotes

    def unreached(self) -> set[str]:
        """Services of other brokers to which no link leads at the moment."""
        if self.linked is None:
            return set()
        neighbours = self.linked.federation.neighbours
        return {name for name, each in self.remotes.items() if neighbours[each.via].state != "up"}

    @property
    def services(self) -> Mapping[str, Service]:
        """All services: our own, and those of other brokers."""
        return {**self.definitions.services, **{name: each.service for name, each in self.remotes.items()}}

    def service(self, name: str) -> Service:
        """A service; an error where it is not there. Hints are for `Policies.need`, which knows who asks."""
        services = self.services
        if name not in services:
            raise NotRegistered(f"no service {name!r}")
        return services[name]

    def stream(self, name: str) -> Stream:
        """A raw stream; an error where it is not there. Hints are for `Policies.need_stream`, which knows who asks."""
        found = self.definitions.streams.get(name)
        if found is None:
            raise NotRegistered(f"no stream {name!r}")
        return found

    async def _follow(self) -> None:
        await periodic(self._look_or_log, LOOK_S)

    async def _look_or_log(self) -> None:
        try:
            await self.look()
        except Exception as problem:  # whatever it is, the next look may succeed: policies must not stand still
            _log.warning("can't look at the registry", problem=error_text(problem))

    async def look(self) -> None:
        """Take in what has changed in the registry, and what services say of themselves."""
        loop = asyncio.get_running_loop()
        revision = await loop.run_in_executor(None, self.registry.revision)
        if revision != self._revision:
            found, self.versions = await loop.run_in_executor(None, self._read)
            self.definitions, self.schemas = found.definitions, found.schemas
            self.ingest.define(self.definitions.streams)
            await self._define()
            self._revision = revision
            if self.linked is not None:
                self.linked.federation.tell_offers()
        await loop.run_in_executor(None, self._read_status)
        self._was_ready = self._was_ready or (bool(self.definitions.services) and self.is_ready)

    async def _define(self) -> None:
        """Serve what the registry says, and what other brokers offer."""
        own, remotes = self.definitions.services, dict(self.remotes)
        served = {name: self.schemas[name] for name in own}
        served |= {name: each.schema for name, each in remotes.items()}
        told = {STATUS: self._statuses, catalog.STREAM: catalog.SCHEMA}
        audit = {audit_stream.STREAM: audit_stream.SCHEMA}
        services = {**own, **{name: each.service for name, each in remotes.items()}}
        if self.linked is not None:
            self.linked.services = own
        keys = {**output_keys(self.definitions), **dict.fromkeys(told, catalog.KEY)}
        self.policies.define(services, {**served, **told, **audit}, keys, self.definitions.streams)
        meanings = {name: self.policies.meaning(name) for name in (*served, *told)}
        self.hub.serve({**served, **told, **audit}, {name: each for name, each in meanings.items() if each is not None})
        self.durable.heed_all()
        await asyncio.get_running_loop().run_in_executor(None, self.finder.define, services, served)

    def _read(self) -> tuple[Usable, dict[str, int]]:
        """Read what the registry says, without what can't be used: that must not keep the rest from being served."""
        found = usable(self.registry.definitions())
        for name, problem in {**self.registry.unreadable(), **found.problems}.items():
            _log.warning("a definition can't be used", name=name, problem=problem)
        return found, {name: each.version for name, each in self.registry.services().items()}

    def _read_status(self) -> None:
        try:
            is_past = self._seen is None
            if self._seen is None:
                self._seen = self.log.begin(STATUS)
            while (read := self.log.read(STATUS, self._seen, 1_000)).records:
                for record in read.records:
                    try:
                        self._hear(orjson.loads(record), is_past=is_past)
                    except (ValueError, TypeError, KeyError) as problem:  # of another version
                        _log.warning("a record of _status can't be read", problem=error_text(problem))
                self._seen = read.cursor
        except LogError:  # nothing has run here yet, or it was made anew
            self._seen = None

    def _hear(self, said: Mapping[str, Any], *, is_past: bool) -> None:
        name = said["service"]
        if said.get("kind", "service") != "service":
            return  # of a raw stream's source
        self._heard[name] = time.monotonic() - (_age_s(said) if is_past else 0.0)
        self.status[name] = dict(said)
        self.finder.hear(said)


def _age_s(said: Mapping[str, Any]) -> float:
    """How long ago a status was told, by its own clock; what comes while we listen is new, whatever that says."""
    told = timestamps.from_text(said["time"])
    return 0.0 if told is None else max(0.0, time.time() - told / 1e6)
