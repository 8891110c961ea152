"""The audit log: who did what, from which address, with which result, as events of `_audit` and as log lines.

It has two partitions. `changes` has one record for every change of definitions, policies, keys and links. `attempts`
has refused calls, failed sign-ins and changes of durable subscriptions. A caller can repeat refused calls without
limit. Therefore only the first attempts of one kind by one caller or address have their own records; further ones are
counted, with one record per minute. The number of records per minute and the size of each partition are bounded.

A record contains names, ids and kinds of problems, never a body, a query, a header or the text of an error.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import orjson
import structlog

from tidegate.errors import TidegateError
from tidegate.logs import EventLog, RetentionLimits
from tidegate.model import timestamps
from tidegate.services.audit_stream import MAX_AGE_S, MAX_BYTES, STREAM
from tidegate.timing import periodic

if TYPE_CHECKING:
    from tidegate.gateway.auth.callers import Caller

Result = Literal["ok", "refused", "failed"]
Part = Literal["changes", "attempts"]
PARTS: tuple[Part, ...] = ("changes", "attempts")

SINGLE_ATTEMPTS = 5
"""Attempts of one kind by one caller or address per window that have their own records; more are only counted."""
MAX_ATTEMPT_RECORDS = 300
"""Records of attempts per window, of all callers; the rest has one record per kind."""
MAX_COUNTED = 10_000
"""Kinds of attempts that are counted separately in a window."""
WINDOW_S = 60.0
FLUSH_INTERVAL_S = 1.0
EXPIRE_INTERVAL_S = 600.0
MAX_PENDING = 10_000
"""Records that wait for the log. More are dropped and counted; their log lines are still written."""
MAX_TEXT = 200
"""Characters of a name that a caller has chosen."""
MAX_DETAIL = 2_000
MANY = "many"
"""The address in a record that sums up attempts from several addresses."""

_SECRET = re.compile(r"(tg_[A-Za-z0-9]{8})_[A-Za-z0-9_-]+|(whsec_)[A-Za-z0-9+/=_-]+")
_log = structlog.get_logger("tidegate.audit")


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One record without its time and count."""

    action: str
    result: Result
    caller: str | None
    name: str | None
    role: str | None
    address: str
    target: str | None
    detail: str | None

    @property
    def kind(self) -> tuple[str, str, str, str | None]:
        """The key under which attempts are counted together."""
        return self.action, self.result, self.caller or network_of(self.address), self.detail


@dataclass
class Slot:
    """The number of the `_audit` partitions that this process writes. A file log has one writer per partition."""

    folder: Path | None
    """The folder with the locks of processes that share a log; None: one process, or a log with many writers."""
    number: int = 0
    _file: int | None = field(default=None, repr=False)

    def take(self) -> None:
        """Take the lowest free number, and hold it until `release` or the end of the process."""
        if self.folder is None or self._file is not None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        for number in range(1_000):
            file = os.open(self.folder / f"{number}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(file)
                continue
            self.number, self._file = number, file
            return
        raise TidegateError(f"can't write the audit log: all numbers in {str(self.folder)!r} are taken")

    def release(self) -> None:
        """Release the number for other processes."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class AuditWriter:
    """Appends records to `_audit`. Methods block, and must be called by one thread at a time."""

    def __init__(self, log: EventLog, gateway: str, folder: Path | None = None) -> None:
        """`gateway` is the name of this process in records; `folder`: see `Slot`."""
        self._log, self._gateway, self._slot = log, gateway, Slot(folder)
        self._is_open, self._sequence = False, 0

    def append(self, part: Part, entries: Sequence[tuple[int, int, AuditEntry]]) -> None:
        """Append entries, each with its time in microseconds and its count."""
        self.open()
        self._log.append(STREAM, self._partition(part), [self._record(*entry) for entry in entries])

    def open(self) -> None:
        """Create the stream, unless it is open already."""
        if not self._is_open:
            self._slot.take()
            self._log.create(STREAM, [self._partition(part) for part in PARTS])
            self._is_open = True

    def expire(self) -> None:
        """Remove records that exceed the retention."""
        self._log.expire(STREAM, RetentionLimits(MAX_AGE_S, MAX_BYTES))

    def close(self) -> None:
        """Release the partitions for other processes."""
        self._slot.release()
        self._is_open = False

    def _partition(self, part: Part) -> str:
        return f"{part}.{self._slot.number}"

    def _record(self, micros: int, count: int, entry: AuditEntry) -> bytes:
        moment = timestamps.to_text(micros)
        self._sequence += 1
        return orjson.dumps(
            {
                "_id": f"{self._gateway}-{os.getpid()}-{micros}-{self._sequence}",
                "_time": moment,
                "action": entry.action,
                "result": entry.result,
                "caller": entry.caller,
                "name": entry.name,
                "role": entry.role,
                "address": entry.address,
                "target": entry.target,
                "detail": entry.detail,
                "count": count,
                "gateway": self._gateway,
                "time": moment,
            }
        )


class Audit:
    """Collects records on the event loop, and writes them in a thread."""

    def __init__(self, writer: AuditWriter, clock: Callable[[], float] = time.time) -> None:
        self._writer, self._clock = writer, clock
        self._pending: list[tuple[Part, int, int, AuditEntry]] = []
        self._expired_at = float("-inf")
        self._window_at = clock()
        self._window_records = 0
        self._seen: Counter[Any] = Counter()
        self._counted: dict[Any, tuple[int, AuditEntry]] = {}
        self._turn = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self.records: Counter[str] = Counter()
        """Number of records by partition, `changes` or `attempts`."""
        self.lost = 0
        """Number of records that were dropped because too many waited for the log."""

    # Recording ---------------------------------------------------------------------------

    def record(
        self,
        action: str,
        *,
        caller: Caller | None,
        address: str,
        target: str | None = None,
        result: Result = "ok",
        detail: str | None = None,
    ) -> None:
        """Record an action of a caller, or an attempt. The record is in the log when `flush` has returned."""
        entry = AuditEntry(
            action,
            result,
            None if caller is None else caller.id,
            None if caller is None else clean(caller.name),
            None if caller is None else caller.role,
            address,
            clean(target),
            clean(detail, MAX_DETAIL),
        )
        if result == "ok" and not action.startswith("subscription."):
            self._add("changes", entry)
        else:
            self._attempt(entry)

    def _attempt(self, entry: AuditEntry) -> None:
        kind = entry.kind
        is_known = kind in self._seen
        if not is_known and len(self._seen) >= MAX_COUNTED:
            kind = _summed(entry).kind
        self._seen[kind] += 1
        if self._seen[kind] <= SINGLE_ATTEMPTS and self._window_records < MAX_ATTEMPT_RECORDS:
            self._window_records += 1
            self._add("attempts", entry)
            return
        count, _ = self._counted.get(kind, (0, entry))
        self._counted[kind] = count + 1, entry

    def _add(self, part: Part, entry: AuditEntry, count: int = 1) -> None:
        self.records[part] += 1
        line = _log.info if entry.result == "ok" else _log.warning
        line(
            "audit",
            action=entry.action,
            result=entry.result,
            caller=entry.caller,
            name=entry.name,
            role=entry.role,
            address=entry.address,
            target=entry.target,
            detail=entry.detail,
            count=count,
        )
        if len(self._pending) >= MAX_PENDING:
            self.lost += 1
            return
        self._pending.append((part, int(self._clock() * 1e6), count, entry))

    def end_window(self) -> None:
        """Record the counted attempts: the largest counts separately, the others summed up by kind."""
        counted = sorted(self._counted.values(), key=lambda each: -each[0])
        for count, entry in counted[:MAX_ATTEMPT_RECORDS]:
            self._add("attempts", entry, count)
        rest: dict[Any, tuple[int, AuditEntry]] = {}
        for count, entry in counted[MAX_ATTEMPT_RECORDS:]:
            sum_ = _summed(entry)
            rest[sum_.kind] = rest.get(sum_.kind, (0, sum_))[0] + count, sum_
        for count, entry in rest.values():
            self._add("attempts", entry, count)
        self._seen.clear()
        self._counted.clear()
        self._window_at, self._window_records = self._clock(), 0

    # Writing -----------------------------------------------------------------------------

    async def start(self) -> None:
        """Create the stream, and start the task that writes every second. Logs a failure, and tries again later."""
        try:
            await asyncio.get_running_loop().run_in_executor(None, self._writer.open)
        except (TidegateError, OSError) as problem:
            _log.error("can't open the audit log; trying again with the first record", problem=str(problem))
        self._task = asyncio.create_task(self._follow())

    async def flush(self) -> None:
        """Write all waiting records. If that fails, they are kept and written with the next call."""
        async with self._turn:
            batch, self._pending = self._pending, []
            if not batch:
                return
            try:
                await asyncio.get_running_loop().run_in_executor(None, self._write, batch)
            except (TidegateError, OSError) as problem:
                # The change cannot be undone, and its log line is written. Try again.
                _log.error("can't write the audit log; trying again", problem=str(problem), records=len(batch))
                unwritten = (batch + self._pending)[:MAX_PENDING]
                self.lost += len(batch) + len(self._pending) - len(unwritten)
                self._pending = unwritten

    def _write(self, batch: Sequence[tuple[Part, int, int, AuditEntry]]) -> None:
        for part in PARTS:
            entries = [(micros, count, entry) for of, micros, count, entry in batch if of == part]
            if entries:
                self._writer.append(part, entries)

    async def _follow(self) -> None:
        await self._expire_if_due()
        await periodic(self._write_and_expire, FLUSH_INTERVAL_S)

    async def _write_and_expire(self) -> None:
        if self._clock() - self._window_at >= WINDOW_S:
            self.end_window()
        await self.flush()
        await self._expire_if_due()

    async def _expire_if_due(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() - self._expired_at >= EXPIRE_INTERVAL_S:
            self._expired_at = loop.time()
            try:
                await loop.run_in_executor(None, self._writer.expire)
            except (TidegateError, OSError) as problem:
                _log.warning("can't shorten the audit log", problem=str(problem))

    async def close(self) -> None:
        """Write the remaining records, and release the partitions."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self.end_window()
        await self.flush()
        self._writer.close()


def _summed(entry: AuditEntry) -> AuditEntry:
    """Return the entry that sums up all attempts of one kind, by all callers."""
    return AuditEntry(entry.action, entry.result, None, None, None, MANY, None, entry.detail)


def clean(text: str | None, limit: int = MAX_TEXT) -> str | None:
    """Return a text that callers can influence: shortened, on one line, and without anything like our secrets.

    >>> clean("tg_abcd1234_this-is-secret\\n2026 audit")
    'tg_abcd1234_… 2026 audit'
    """
    if text is None:
        return None
    shown = "".join(char if char.isprintable() else " " for char in text[: limit + 1])
    shown = _SECRET.sub(lambda match: f"{match[1]}_…" if match[1] else f"{match[2]}…", shown)
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


@lru_cache(maxsize=4_096)
def network_of(address: str) -> str:
    """Return the network that counts as one address: the /64 of an IPv6 address, otherwise the address itself.

    >>> network_of("192.0.2.7"), network_of("2001:db8::1:2"), network_of("::ffff:192.0.2.7")
    ('192.0.2.7', '2001:db8::/64', '192.0.2.7')
    """
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.version == 4:
        return str(parsed)
    return str(parsed.ipv4_mapped or ip_network(f"{parsed}/64", strict=False))


def address_of(scope: Any) -> str:
    """Return the client address of a request."""
    client = scope.get("client")
    return str(client[0]) if client else "unknown"
