"""Joins the parts of the gateway process, and keeps them up to date with the registry and the log."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import structlog
from starlette.requests import HTTPConnection

from tidegate.delivery.hub import Hub
from tidegate.discovery import kernels as searching
from tidegate.errors import LogError, NotRegistered, RegistryError
from tidegate.federation.link import LinkSettings, Remote
from tidegate.filters.meaning import Semantics
from tidegate.gateway import service_status
from tidegate.gateway.audit.log import Audit, AuditWriter
from tidegate.gateway.auth.callers import Callers, caller_of
from tidegate.gateway.auth.certificates import Certificates
from tidegate.gateway.auth.oidc import Issuer
from tidegate.gateway.auth.origins import checked
from tidegate.gateway.auth.owner_rights import OwnerRights
from tidegate.gateway.auth.policy import Policies
from tidegate.gateway.auth.quotas import Meter, share
from tidegate.gateway.auth.sign_ins import SignIns
from tidegate.gateway.auth.view import View
from tidegate.gateway.federation_adapter import FederationAdapter
from tidegate.gateway.finder import Finder
from tidegate.gateway.http.connections import Connections
from tidegate.gateway.http.executors import Executors
from tidegate.gateway.http.tls import ServerTls
from tidegate.gateway.outages import Outages
from tidegate.gateway.quarantine import ReplayMarks
from tidegate.gateway.roster import Roster
from tidegate.gateway.service_status import ServiceStatuses
from tidegate.gateway.settings import AccessSettings, LimitSettings
from tidegate.gateway.subscriptions.durable import Durable, DurableSettings
from tidegate.gateway.subscriptions.sweep import Sweep
from tidegate.gateway.telemetry.metrics import Metrics
from tidegate.gateway.telemetry.tracing import Tracing
from tidegate.gateway.transports import outbox
from tidegate.gateway.transports.outbox import Outbox
from tidegate.ingress.http import Ingestor, IngestWorker
from tidegate.logs import EventLog
from tidegate.matching import kernels, meaning_kernels
from tidegate.model import Schema
from tidegate.registry import RegisteredSubscription, Registry
from tidegate.semantics.shared import Shared
from tidegate.services import Definitions, Service, Stream, audit_stream, catalog
from tidegate.services.check import Usable, usable
from tidegate.services.derived import with_derived_constraints
from tidegate.services.keys import output_keys
from tidegate.services.trust import Resources
from tidegate.timing import periodic

POLL_INTERVAL_S = 0.25
"""Between two reads of the registry and `_status`."""

_log = structlog.get_logger("tidegate.gateway")


class Gateway:
    """Follows the registry and the log, and holds the parts that serve them.

    `ingest` appends to raw streams. `statuses` is the schema of the stream `_status`.
    `needs_keys`: callers must authenticate with an API key, a client certificate, or a token of the issuer in `access`.
    `origins`: web origins whose pages may use the gateway, besides its own.
    `tracing`: None disables tracing. `links`: settings of links to other brokers; None: there are no links.
    `semantics` evaluates filters with ~; None: such filters are refused.
    `id_key`: HMAC key of event ids for callers who may not see what the ids are derived from. It must be the
    same in all gateways; None: a random one.
    `tls`: None: the gateway listens without TLS. `certificates`: callers by client certificate.
    `resources`: functions, folders and connections that definitions sent over HTTP may use; None: none.
    `audit_locks`: folder in which gateways over one file log agree on who writes which partition of the audit log;
    None: this gateway is the only one. `name`: the name of this gateway in the audit log and for the other gateways.

    Create it on any thread; call everything else on the event loop that called `start`.
    """

    def __init__(
        self,
        registry: Registry,
        log: EventLog,
        ingest: Ingestor,
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
        self.registry, self.log, self.ingest, self.needs_keys = registry, log, ingest, needs_keys
        self._status_schema = statuses
        self.resources, self.tracing, self.tls = resources or Resources(), tracing, tls
        self.origins = checked(origins, needs_keys=needs_keys)
        self.access, self.limits = access or AccessSettings(), limits or LimitSettings()
        self.connections, self.executors = Connections(self.limits), Executors(self.limits)
        self._make_auth(certificates, Audit(AuditWriter(log, name, audit_locks)))
        self.metrics = Metrics()
        self.metrics.watch(self)
        self.semantics = None if semantics is None else Shared(semantics)
        self.policies = Policies(self.semantics, id_key or secrets.token_bytes(32))
        self.owners = OwnerRights(self.policies, self.certificates, needs_keys=needs_keys)
        self.roster = Roster(registry, name, has_semantics=semantics is not None)
        self.roster.parts["use"] = self.meter.report
        self.roster.listeners.append(
            lambda reports: self.meter.note_others(report.get("use") for report in reports.values())
        )
        self._make_delivery(durable or DurableSettings(), links)
        self.open_sockets: Counter[str | None] = Counter()
        """Open WebSockets by the id of their caller."""
        self.replay_marks = ReplayMarks(log)
        self.finder = Finder(self.semantics)
        self.definitions = Definitions()
        self.schemas: Mapping[str, Schema] = {}
        self.versions: Mapping[str, int] = {}
        self.statuses = ServiceStatuses(log, self.finder.observe)
        self.outages = Outages()
        self._revision = -1
        self._was_ready = False
        self._follower: asyncio.Task[None] | None = None
        self._tls_follower: asyncio.Task[None] | None = None
        self.is_draining = False

    def _make_auth(self, certificates: Certificates | None, audit: Audit) -> None:
        self._issuer = None if self.access.oidc is None else Issuer(self.access.oidc)
        self.meter = Meter(
            self.access.quotas, max_connections=share(self.connections.max_open) if self.needs_keys else None
        )
        self.certificates = certificates or Certificates(self.access.certificates)
        self.callers = Callers(self.registry, self._issuer, self.certificates, pool=self.executors.auth)
        self.audit = audit
        self.sign_ins = SignIns(self.callers, audit, self.limits.sign_in_failures)

    def _make_delivery(self, durable: DurableSettings, links: LinkSettings | None) -> None:
        self.outbox = Outbox()
        """Collects the writes of one dispatch to all sockets."""
        if links is None:
            self.linked = None
            self.hub = Hub(self.log, self._dispatched, write_batch=self.outbox)
        else:
            self.linked = FederationAdapter(self.registry, self.log, self.policies, links, self._define)
            federation = self.linked.federation
            self.roster.has_links = lambda: federation.has_lease
            self.roster.parts["needs"] = federation.shared_needs.report
            self.roster.listeners.append(
                lambda reports: federation.shared_needs.note({id_: each.get("needs") for id_, each in reports.items()})
            )
            on_change = self.linked.on_subscription_change
            self.hub = Hub(self.log, self._dispatched, on_change, self.linked, write_batch=self.outbox)
        self.durable = Durable(
            self.registry,
            self.log,
            self.hub,
            durable,
            self.owners.encoding,
            self.metrics.sent,
            self.tracing,
            lambda record: self.meter.pace(self.owners.owner(record)),
            self.roster.id,
            lambda: self.roster.peers,
        )
        self.sweep = Sweep(self.registry, self.hub, self.durable, self.policies, self.owners, self.sign_ins)
        self.durable.before = self.sweep.read_keys
        self.durable.obstacle = self.sweep.obstacle
        self.durable.on_change = self._on_durable_change

    def _on_durable_change(self, id_: str, registered: RegisteredSubscription | None) -> None:
        if registered is None:
            self.metrics.forget(id_)
        elif registered.subscription.push_target is None:
            self.metrics.failures.pop(id_, None)
        if self.linked is not None:
            self.linked.on_durable_change(id_, registered)

    def _dispatched(self, service: str, seconds: float, events: Sequence[Mapping[str, Any]]) -> None:
        self.metrics.dispatched(service, seconds)
        if self.tracing is not None:
            self.tracing.dispatched(service, seconds, events)

    async def start(self) -> None:
        """Read the registry, then start all background tasks. Compiles kernels first, so that no event waits for it."""
        self.executors.start()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, kernels.warm_up)
        if self.semantics is not None:
            await loop.run_in_executor(None, meaning_kernels.warm_up)
        await loop.run_in_executor(None, searching.warm_up)
        await loop.run_in_executor(None, outbox.warm_up)
        if isinstance(self.ingest, IngestWorker):
            await self.ingest.start()
        await self.audit.start()
        await (
            self._refresh_or_log()
        )  # after a failure the gateway serves the definitions that it could read; the follower retries
        self._follower = asyncio.create_task(self._follow())
        if self.tls is not None:
            self._tls_follower = asyncio.create_task(self.tls.follow())
        if self.linked is not None:
            await self.linked.federation.start()
        await self.sweep.start()
        await self.roster.start()
        await self.durable.start()
        if self.linked is not None:  # by now, durable subscriptions have requested their filters from other brokers
            await self.linked.federation.open()

    def drain(self) -> None:
        """Refuse new subscribers, and tell connected ones to reconnect."""
        self.is_draining = True
        self.hub.drain()

    async def close(self) -> None:
        """End all subscriptions, links, background tasks and threads. Called once, by the lifespan of the app."""
        for task in (self._follower, self._tls_follower):
            if task is not None:
                task.cancel()
        await self.sweep.close()
        await self.audit.close()
        await self.durable.close()
        await self.roster.close()
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
        """True if every service of the registry runs, or is known to fail.

        A gateway that was ready stays ready while a newly applied service starts. Otherwise any provider could take
        all gateways out of a load balancer.
        """
        return not self.is_draining and all(map(self._is_settled, self.definitions.services))

    def _is_settled(self, name: str) -> bool:
        state, status = self.state(name), self.statuses.newest.get(name, {})
        if state in ("silent", "stopped"):
            return False
        is_failing = status.get("error") is not None
        if status.get("version") != self.versions.get(name) or (state == "starting" and not is_failing):
            return self._was_ready
        return state == "running" or is_failing

    def state(self, name: str) -> str:
        """Return the state of a service; `silent` if its runner stopped reporting without saying that it stops."""
        return self.statuses.state(name, can_report="log" not in self.outages.problems)

    def source_state(self, stream: str) -> str:
        """Return the state of a raw stream's source; `silent` if its runner is dead."""
        return self.statuses.source_state(stream, can_report="log" not in self.outages.problems)

    def view(self, request: HTTPConnection) -> View:
        """Return what the caller of a request sees."""
        return View(self.policies, self.meter, caller_of(request))

    @property
    def remotes(self) -> Mapping[str, Remote]:
        """Services of other brokers by their local names, `NAME@BROKER`."""
        return {} if self.linked is None else self.linked.remotes

    def unreached(self) -> set[str]:
        """Return the services of other brokers whose link is down."""
        if self.linked is None:
            return set()
        neighbours = self.linked.federation.neighbours
        return {name for name, remote in self.remotes.items() if neighbours[remote.via].state != "up"}

    @property
    def services(self) -> Mapping[str, Service]:
        """All services: those of this broker and those of others."""
        return {**self.definitions.services, **{name: remote.service for name, remote in self.remotes.items()}}

    def service(self, name: str) -> Service:
        """Return a service. Raises `NotRegistered`, without hints: only `Policies.need` may give some."""
        services = self.services
        if name not in services:
            raise NotRegistered(f"no service {name!r}")
        return services[name]

    def stream(self, name: str) -> Stream:
        """Return a raw stream. Raises `NotRegistered`, without hints: only `StreamPolicies.need` may give some."""
        stream = self.definitions.streams.get(name)
        if stream is None:
            raise NotRegistered(f"no stream {name!r}")
        return stream

    async def _follow(self) -> None:
        await periodic(self._refresh_or_log, POLL_INTERVAL_S)

    async def _refresh_or_log(self) -> None:
        """Read the registry and `_status`. If one does not answer, the other is read all the same."""
        try:
            await self.refresh_definitions()
            self.outages.clear("registry")
        except Exception as problem:  # the next attempt may succeed: policies must not stay outdated
            self.outages.note("can't read the registry", problem, "registry", RegistryError)
        try:
            await self.refresh_status()
            if self.outages.clear("log"):
                self.statuses.log_answers_again()
        except Exception as problem:
            self.outages.note("can't read the status of services", problem, "log", LogError)

    async def refresh(self) -> None:
        """Apply what has changed in the registry, and read new events of `_status`. Routes await it after a change."""
        await self.refresh_definitions()
        await self.refresh_status()

    async def refresh_definitions(self) -> None:
        """Apply what has changed in the registry."""
        loop = asyncio.get_running_loop()
        revision = await loop.run_in_executor(None, self.registry.revision)
        if revision != self._revision:
            valid, self.versions = await loop.run_in_executor(None, self._read)
            self.definitions, self.schemas = valid.definitions, valid.schemas
            self.ingest.define(self.definitions.streams)
            await self._define()
            self._revision = revision
            if self.linked is not None:
                self.linked.federation.send_offers()

    async def refresh_status(self) -> None:
        """Read new events of `_status`."""
        await asyncio.get_running_loop().run_in_executor(None, self.statuses.read)
        self._was_ready = self._was_ready or (bool(self.definitions.services) and self.is_ready)

    async def _define(self) -> None:
        """Pass all services, own and remote, to the policies, the hub and the finder."""
        own, remotes = self.definitions.services, dict(self.remotes)
        served = {name: self.schemas[name] for name in own}
        served |= {name: remote.schema for name, remote in remotes.items()}
        about_services = {service_status.STREAM: self._status_schema, catalog.STREAM: catalog.SCHEMA}
        audit = {audit_stream.STREAM: audit_stream.SCHEMA}
        services = {**own, **{name: remote.service for name, remote in remotes.items()}}
        if self.linked is not None:
            self.linked.services = own
        keys = {**output_keys(self.definitions), **dict.fromkeys(about_services, catalog.KEY)}
        # What a caller subscribes to has more constraints: a filter that contradicts them is refused. Stored
        # subscriptions are not, because a later version of the service may match them again.
        promised = {name: with_derived_constraints(own[name], schema) for name, schema in served.items() if name in own}
        schemas = {**served, **promised, **about_services, **audit}
        self.policies.define(services, schemas, keys, self.definitions.streams)
        meanings = {name: self.policies.meaning(name) for name in (*served, *about_services)}
        self.hub.serve(
            {**served, **about_services, **audit},
            {name: meaning for name, meaning in meanings.items() if meaning is not None},
        )
        self.durable.notify_all()
        await asyncio.get_running_loop().run_in_executor(None, self.finder.define, services, served)

    def _read(self) -> tuple[Usable, dict[str, int]]:
        """Read the definitions that can be used, and log the others: one bad definition must not stop the rest."""
        valid = usable(self.registry.definitions())
        for name, problem in {**self.registry.unreadable(), **valid.problems}.items():
            _log.warning("a definition can't be used", name=name, problem=problem)
        return valid, {name: service.version for name, service in self.registry.services().items()}
