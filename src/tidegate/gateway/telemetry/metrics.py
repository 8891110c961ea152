"""The Prometheus metrics of a gateway. Their names are part of the public interface."""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from tidegate.federation.link.neighbour import REFUSALS
from tidegate.gateway import outages
from tidegate.gateway.audit.log import PARTS
from tidegate.gateway.http.connections import REASONS
from tidegate.services.quality import DISPATCH_BOUNDS_S, LATENCY_BOUNDS_S

if TYPE_CHECKING:
    from tidegate.delivery.push.transport import Outcome
    from tidegate.gateway.gateway import Gateway
    from tidegate.subscriptions import SubscriptionRecord

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Way = str
"""How events are delivered: `sse`, `websocket`, `poll`, or the kind of a push target, such as `webhook`."""
_SERVICE_COUNTS = (
    "read",
    "results",
    "written",
    "flagged",
    "quarantined",
    "dropped",
    "late",
    "filtered",
    "used",
    "skipped",
)
"""Counters of a service, as `_status` names them."""


class Tally:
    """A counter for the event loop, without a lock: a batch costs one addition."""

    __slots__ = ("_within", "count")

    def __init__(self, *within: Tally) -> None:
        """`within`: counters that are increased as well."""
        self.count = 0
        self._within = within

    def add(self, count: int) -> None:
        """Increase the counter."""
        self.count += count
        for total in self._within:
            total.add(count)


class Metrics:
    """The metrics of one gateway, and those that services report in `_status`."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.deliveries: dict[tuple[str, Way], Tally] = {}
        self.attempts: dict[tuple[str, str], Tally] = {}
        """Messages to webhooks, by service and outcome."""
        self.subscriptions: dict[str, Tally] = {}
        """Events that this gateway delivered to durable subscriptions, over all transports."""
        self.failures: dict[str, tuple[float, str]] = {}
        """Time and reason of the last failed webhook message, by durable subscription. A success removes it."""
        self._dispatch = Histogram(
            "tidegate_dispatch_seconds",
            "From an event's being read from a service's output to its being written to sockets, by passes.",
            ["service"],
            buckets=DISPATCH_BOUNDS_S,
            registry=self._registry,
        )

    def watch(self, gateway: Gateway) -> None:
        """Include the metrics that are read from the parts of a gateway."""
        self._registry.register(_GatewayCollector(gateway))

    def dispatched(self, service: str, seconds: float) -> None:
        """Record the duration of a dispatch."""
        self._dispatch.labels(service).observe(seconds)

    def dispatch_buckets(self) -> dict[str, dict[str, int]]:
        """Return the histogram of dispatch durations by service: upper bound in seconds, as text, and count."""
        buckets: dict[str, dict[str, int]] = {}
        for family in self._dispatch.collect():
            for sample in family.samples:
                if sample.name.endswith("_bucket"):
                    buckets.setdefault(sample.labels["service"], {})[sample.labels["le"]] = int(sample.value)
        return buckets

    def delivered(self, service: str, way: Way, subscription: str | None = None) -> Tally:
        """Return the counter of a service's events over one transport; with `subscription`, one that counts both."""
        whole = self.deliveries.setdefault((service, way), Tally())
        if subscription is None:
            return whole
        return Tally(whole, self.of_subscription(subscription))

    def of_subscription(self, subscription: str) -> Tally:
        """Return the counter of one durable subscription's events."""
        return self.subscriptions.setdefault(subscription, Tally())

    def forget(self, subscription: str) -> None:
        """Remove the metrics of a durable subscription that was removed."""
        self.subscriptions.pop(subscription, None)
        self.failures.pop(subscription, None)

    def sent(self, record: SubscriptionRecord, outcome: Outcome, events: int) -> None:
        """Record the outcome of a message to a push target."""
        self.attempts.setdefault((record.service, outcome.kind), Tally()).count += 1
        if outcome.kind == "taken":
            target = record.push_target
            self.delivered(record.service, "other" if target is None else target.kind, record.id).add(events)
            self.failures.pop(record.id, None)
        else:
            self.failures[record.id] = (time.time(), outcome.detail)

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self._registry)


class _GatewayCollector:
    """Reads metrics from the parts of a gateway at each scrape."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def collect(self) -> Iterable[Metric]:
        yield from self._delivery()
        yield from self._counted()
        yield from self._lags()
        yield from self._share()
        yield from self._services()
        yield from self._sources()
        yield self._dependencies()
        yield from self._links()
        yield from self._filtering()
        yield from self._tls()
        yield from self._security()
        yield from self._peers()

    def _share(self) -> Iterable[Metric]:
        others = len(self._gateway.roster.others)
        yield GaugeMetricFamily("tidegate_gateways", "Gateways that share the registry.", value=1 + others)
        pushed = self._gateway.durable.pushed
        yield GaugeMetricFamily("tidegate_webhooks", "Webhooks that this gateway delivers.", value=pushed)

    def _security(self) -> Iterable[Metric]:
        sign_ins, audit = self._gateway.sign_ins, self._gateway.audit
        failures = CounterMetricFamily(
            "tidegate_sign_in_failures", "Requests without a key or token that holds, by reason.", labels=["reason"]
        )
        for reason, count in sorted(sign_ins.failures.items()):
            failures.add_metric([reason], count)
        limited = CounterMetricFamily(
            "tidegate_sign_ins_limited",
            "Failed sign-ins that were answered with 429, as their address had failed too often.",
            value=sign_ins.limited,
        )
        records = CounterMetricFamily("tidegate_audit_records", "Records of the audit log.", labels=["part"])
        for part in PARTS:
            records.add_metric([part], audit.records[part])
        lost = CounterMetricFamily(
            "tidegate_audit_records_lost", "Records that the audit log could not take.", value=audit.lost
        )
        return failures, limited, records, lost

    def _peers(self) -> Iterable[Metric]:
        connections, executors = self._gateway.connections, self._gateway.executors
        now = GaugeMetricFamily("tidegate_connections", "Open connections.", labels=["state"])
        for state, count in connections.counts.items():
            now.add_metric([state], count)
        closed = CounterMetricFamily(
            "tidegate_connections_closed", "Connections that were cut off or refused.", labels=["reason"]
        )
        for reason in REASONS:
            closed.add_metric([reason], connections.closed[reason])
        refused = CounterMetricFamily(
            "tidegate_heavy_calls_refused", "Calls that take long, answered with 429.", value=executors.refused
        )
        lag = GaugeMetricFamily(
            "tidegate_event_loop_lag_seconds",
            "The longest delay of the event loop since this was asked last.",
            value=connections.take_lag(),
        )
        return now, closed, refused, lag

    def _tls(self) -> Iterable[Metric]:
        tls = self._gateway.tls
        if tls is None:
            return ()
        expires = GaugeMetricFamily(
            "tidegate_tls_certificate_expires_seconds",
            "When the certificate that is shown expires, as Unix time.",
            value=tls.expires_at.timestamp(),
        )
        failures = CounterMetricFamily(
            "tidegate_tls_reload_failures", "How often changed TLS files could not be loaded.", value=tls.failures
        )
        return expires, failures

    def _delivery(self) -> Iterable[Metric]:
        subscribers = GaugeMetricFamily("tidegate_subscribers", "Who is served now.", labels=["service", "state"])
        events = CounterMetricFamily("tidegate_events_read", "Events read for live subscribers.", labels=["service"])
        matched = CounterMetricFamily("tidegate_events_matched", "Pairs of event and subscriber.", labels=["service"])
        for name, counts in self._gateway.hub.counts().items():
            for state in ("live", "behind"):
                subscribers.add_metric([name, state], counts[state])
            events.add_metric([name], counts["events"])
            matched.add_metric([name], counts["matched"])
        kinds = GaugeMetricFamily(
            "tidegate_subscribers_by_kind", "Who is served now, by how.", labels=["service", "kind"]
        )
        for (name, kind), count in self._gateway.hub.kinds().items():
            kinds.add_metric([name, kind], count)
        return subscribers, kinds, events, matched

    def _counted(self) -> Iterable[Metric]:
        metrics = self._gateway.metrics
        deliveries = CounterMetricFamily("tidegate_deliveries", "Events that went out.", labels=["service", "way"])
        for (service, way), tally in list(metrics.deliveries.items()):
            deliveries.add_metric([service, way], tally.count)
        attempts = CounterMetricFamily(
            "tidegate_webhook_messages",
            "Messages sent to webhooks, by what became of them.",
            labels=["service", "outcome"],
        )
        for (service, kind), tally in list(metrics.attempts.items()):
            attempts.add_metric([service, kind], tally.count)
        return deliveries, attempts

    def _lags(self) -> Iterable[Metric]:
        behind = GaugeMetricFamily(
            "tidegate_delivery_lag",
            "Bytes that the slowest connected subscriber has yet to read.",
            labels=["service"],
        )
        durable = GaugeMetricFamily(
            "tidegate_subscription_lag",
            "What a durable subscription has yet to acknowledge.",
            labels=["service", "subscription"],
        )
        for service, lag in self._gateway.durable.lags.connected.items():
            behind.add_metric([service], lag)
        for (service, id_), lag in self._gateway.durable.lags.stored.items():
            durable.add_metric([service, id_], lag)
        return behind, durable

    def _services(self) -> Iterable[Metric]:
        running = GaugeMetricFamily("tidegate_service_running", "1 while a service runs.", labels=["service"])
        latency = GaugeMetricFamily(
            "tidegate_engine_latency_seconds",
            "From the append of an input to that of the output, over the last second.",
            labels=["service", "quantile"],
        )
        engine = HistogramMetricFamily(
            "tidegate_engine_seconds",
            "From the append of an input to that of the output, by events.",
            labels=["service"],
        )
        processing = HistogramMetricFamily(
            "tidegate_engine_processing_seconds",
            "The part of it since the input was read, by events.",
            labels=["service"],
        )
        lag = GaugeMetricFamily("tidegate_service_lag_bytes", "What a service has yet to read.", labels=["service"])
        counts = {
            key: CounterMetricFamily(f"tidegate_service_events_{key}", f"Events {key}.", labels=["service"])
            for key in _SERVICE_COUNTS
        }
        states = {
            "held": GaugeMetricFamily("tidegate_service_events_held", "Events in the state.", labels=["service"]),
            "restored": GaugeMetricFamily(
                "tidegate_service_events_restored", "Events in the state when the service started.", labels=["service"]
            ),
        }
        restarts = CounterMetricFamily("tidegate_service_restarts", "Restarts after failures.", labels=["service"])
        for name, status in self._gateway.statuses.newest.items():
            running.add_metric([name], float(self._gateway.state(name) == "running"))
            if status.get("behind_bytes") is not None:
                lag.add_metric([name], status["behind_bytes"])
            restarts.add_metric([name], status.get("restarts") or 0)
            for quantile, key in (("0.5", "latency_p50_ms"), ("0.99", "latency_p99_ms")):
                if status.get(key) is not None:
                    latency.add_metric([name, quantile], status[key] / 1_000)
            for family, counts_key, sum_key in (
                (engine, "latencies", "latency_s"),
                (processing, "processing", "processing_s"),
            ):
                # A runner of another version may count by other bounds.
                if len(status.get(counts_key) or ()) == len(LATENCY_BOUNDS_S) + 1:
                    family.add_metric([name], _cumulative(status[counts_key]), status[sum_key])
            for key, counter in counts.items():
                if status.get(key) is not None:  # a count that is not known has no sample
                    counter.add_metric([name], status[key])
            for key, gauge in states.items():
                if status.get(key) is not None:
                    gauge.add_metric([name], status[key])
        return running, latency, engine, processing, lag, restarts, *states.values(), *counts.values()

    def _sources(self) -> Iterable[Metric]:
        running = GaugeMetricFamily("tidegate_source_running", "1 while a source is read.", labels=["stream"])
        events = CounterMetricFamily("tidegate_source_events", "Events appended from a source.", labels=["stream"])
        refused = CounterMetricFamily(
            "tidegate_source_refused", "Records of a source in quarantine.", labels=["stream"]
        )
        restarts = CounterMetricFamily("tidegate_source_restarts", "Restarts after failures.", labels=["stream"])
        known = self._gateway.definitions.streams
        for name, status in list(self._gateway.statuses.sources.items()):
            if name in known:
                running.add_metric([name], float(self._gateway.source_state(name) in ("running", "ended")))
                events.add_metric([name], status.get("written") or 0)
                refused.add_metric([name], status.get("quarantined") or 0)
                restarts.add_metric([name], status.get("restarts") or 0)
        return running, events, refused, restarts

    def _dependencies(self) -> Metric:
        up = GaugeMetricFamily(
            "tidegate_dependency_up", "1 while the registry or the log answers this gateway.", labels=["part"]
        )
        for part in outages.PARTS:
            up.add_metric([part], float(part not in self._gateway.outages.problems))
        return up

    def _links(self) -> Iterable[Metric]:
        linked = self._gateway.linked
        if linked is None:
            return ()
        up = GaugeMetricFamily("tidegate_link_up", "1 while a link is up.", labels=["link"])
        entries = GaugeMetricFamily(
            "tidegate_link_entries", "Filters in the tables of a link.", labels=["link", "direction"]
        )
        messages = CounterMetricFamily("tidegate_link_messages", "Control messages.", labels=["link", "direction"])
        events = CounterMetricFamily(
            "tidegate_link_events", "Events over a link, or not, by what became of them.", labels=["link", "outcome"]
        )
        sessions = CounterMetricFamily("tidegate_link_sessions", "How often a link has come up.", labels=["link"])
        gaps = CounterMetricFamily(
            "tidegate_link_gaps", "Stretches that had expired before they could be sent.", labels=["link"]
        )
        refused = CounterMetricFamily(
            "tidegate_link_refused", "What a neighbour has sent and is not believed.", labels=["link", "reason"]
        )
        strangers = CounterMetricFamily(
            "tidegate_link_handshakes_refused",
            "Sockets whose other end did not prove to be a neighbour, or had to wait.",
        )
        strangers.add_metric([], linked.federation.refused_handshakes)
        broker = linked.federation.broker
        for name, neighbour in linked.federation.neighbours.items():
            figures = neighbour.figures()
            for reason in REFUSALS:
                refused.add_metric([name, reason], neighbour.refusals[reason])
            up.add_metric([name], float(neighbour.state == "up"))
            if name in broker.links:
                requested = sum(len(broker.link(name).requested(service)) for service in neighbour.offers)
                entries.add_metric([name, "out"], requested)
                entries.add_metric([name, "in"], sum(len(table.entries) for table in broker.link(name).tables()))
            messages.add_metric([name, "out"], figures.said)
            messages.add_metric([name, "in"], figures.heard)
            for outcome in ("forwarded", "stopped", "received", "dropped", "repeated"):
                events.add_metric([name, outcome], getattr(figures, outcome))
            sessions.add_metric([name], figures.sessions)
            gaps.add_metric([name], figures.gaps)
        return up, entries, messages, events, sessions, gaps, refused, strangers

    def _filtering(self) -> Iterable[Metric]:
        linked = self._gateway.linked
        if linked is None:
            return ()
        labels = ["link", "service"]
        coarse = GaugeMetricFamily("tidegate_link_coarse", "1 while a link forwards all of a service.", labels=labels)
        events = CounterMetricFamily(
            "tidegate_link_filtering_events",
            "Events for a neighbour, by what is known.",
            labels=[*labels, "figure"],
        )
        turns = CounterMetricFamily(
            "tidegate_link_turns", "How often a link began to filter, or to forward all.", labels=[*labels, "to"]
        )
        seconds = CounterMetricFamily(
            "tidegate_link_asking_seconds", "Time spent on asking what a neighbour wants.", labels=labels
        )
        broker = linked.federation.broker
        for name in broker.links:
            for service, policy in broker.link(name).filter_policies().items():
                figures = policy.figures
                coarse.add_metric([name, service], float(policy.is_coarse))
                for figure in ("forwarded", "stopped", "asked", "excess", "dropped"):
                    events.add_metric([name, service, figure], getattr(figures, figure))
                turns.add_metric([name, service, "coarse"], figures.coarsened)
                turns.add_metric([name, service, "tight"], figures.tightened)
                seconds.add_metric([name, service], figures.asking_s)
        return coarse, events, turns, seconds


def _cumulative(counts: Iterable[int]) -> list[tuple[str, float]]:
    """Counts by their bounds as a histogram has them: each with all that are less."""
    bounds = (*map(str, LATENCY_BOUNDS_S), "+Inf")
    return list(zip(bounds, accumulate(counts), strict=True))
