"""A real cluster on one machine, with the services of `tidegate demo`: `make cluster-demo`.

PostgreSQL, a Kafka broker, a standalone Spark master with two workers, `tidegate up` and two gateways run as processes
of their own, on loopback, in a temporary folder. Subscribers of every kind listen at both gateways. After `--for`, or
at Ctrl-C, everything ends, and the folder is removed. Exit code 1: a service did not run, or a subscriber got nothing.
"""

from __future__ import annotations

import argparse
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx

from tests.cluster.spark import SparkCluster
from tests.kafka_broker import Broker, need_kafka
from tests.polling import until
from tests.ports import free_port
from tests.postgres_server import need_postgres, running
from tidegate.cli.demo.command import CITY
from tidegate.cli.demo.subscribers import DemoSubscribers
from tidegate.cli.input import durations
from tidegate.errors import TidegateError

WORKERS, SLOTS, GATEWAYS = 2, 12, 2
STOP_TIMEOUT_S = 60.0
REPORT_INTERVAL_S = 5.0

T = TypeVar("T")


@contextmanager
def tidegate(output: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command of Tidegate in a session of its own, so that Ctrl-C reaches only this process."""
    with output.open("wb") as written:
        process = subprocess.Popen(
            [sys.executable, "-m", "tidegate", *arguments], stdout=written, stderr=written, start_new_session=True
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Cluster:
    """The processes of a cluster. Leaving the context ends them, the last one first."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._started = folder, ExitStack()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.urls: list[str] = []

    def __enter__(self) -> Cluster:
        try:
            self._start()
        except BaseException:
            self._started.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._started.close()

    def _start(self) -> None:
        enter = self._started.enter_context
        database = step("PostgreSQL", lambda: enter(running(need_postgres())))
        need_kafka()
        broker = step("Kafka", lambda: enter(Broker(self._subfolder("kafka"))))
        spark = step("Spark's master", lambda: enter(SparkCluster(self._subfolder("spark"))))
        step(f"{WORKERS} workers", lambda: [spark.add_worker(SLOTS) for _ in range(WORKERS)])
        profile = self._folder / "profile.yaml"
        # The folder is on this machine, as all workers are.
        profile.write_text(
            f"{spark.profile}shared: true\nlog: {{kafka: '{broker.address}'}}\nregistry: '{database}'\n"
            "webhooks: {allow_private: true}\n"
        )
        profile.chmod(0o600)  # it has the registry's password
        options = ("--profile", str(profile), "--data", str(self._folder / "data"))
        self._run("up", "up", str(CITY), "--no-gateway", *options)
        for n in range(GATEWAYS):
            port = free_port()
            self._run(f"gateway-{n}", "gateway", *options, "--port", str(port))
            self.urls.append(f"http://127.0.0.1:{port}")
        step("all services", lambda: until(self._is_ready, "all services to run"))

    def _subfolder(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir()
        return folder

    def _run(self, name: str, *arguments: str) -> None:
        self._processes[name] = self._started.enter_context(tidegate(self._folder / f"{name}.txt", *arguments))

    def output(self, name: str) -> str:
        """What a process of Tidegate has written."""
        return (self._folder / f"{name}.txt").read_text(errors="replace")

    def check(self) -> None:
        """Raise a `TidegateError` with the last output if a process has ended."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                raise TidegateError(f"{name} ended with {process.returncode}:\n{self.output(name)[-3_000:]}")

    def _is_ready(self) -> bool:
        self.check()
        return bool(re.search(r"^ready: ", self.output("up"), re.M)) and all(
            state == "running" for url in self.urls for state in states(url).values()
        )


def states(url: str) -> dict[str, str]:
    """Return the state of each service as a gateway sees it; `no answer` if it does not answer."""
    try:
        answer = httpx.get(f"{url}/readyz", timeout=5).json()
    except (httpx.HTTPError, ValueError):
        return {url: "no answer"}
    found: dict[str, str] = answer.get("services", {url: answer["status"]})
    return found


def step(what: str, action: Callable[[], T]) -> T:
    """Print what is waited for, and how long it took."""
    print(f"waiting for {what} ... ", end="", flush=True)
    started_at = time.monotonic()
    result = action()
    print(f"{time.monotonic() - started_at:.1f} s", flush=True)
    return result


def report(subscribers: Sequence[DemoSubscribers]) -> bool:
    """Print what each subscriber got. Returns True if each that must get events got some."""
    print(f"{'gateway':8}{'kind':11}{'service':11}{'events':>9}{'p50 ms':>9}{'p99 ms':>9}  filter")
    counts: list[int] = []
    for n, at_gateway in enumerate(subscribers):
        rows: list[dict[str, Any]] = [each.summary() for each in at_gateway.subscribers]
        for row in rows:
            counts.append(row["events"])
            ages = "".join(f"{row[each]:9,.0f}" if each in row else " " * 9 for each in ("p50_ms", "p99_ms"))
            print(f"{n:<8}{row['kind']:11}{row['service']:11}{row['events']:9,}{ages}  {row['filter'] or 'everything'}")
    return all(counts)


def demo(cluster: Cluster, for_s: float) -> bool:
    """Let subscribers listen at every gateway for a while, and report on them."""
    for n, url in enumerate(cluster.urls):
        print(f"gateway {n}: {url}/")
    subscribers = [DemoSubscribers(url) for url in cluster.urls]
    found: dict[str, str] = {}
    try:
        # A service counts as running before the executors of a cluster are there.
        step("the first deliveries", lambda: until(lambda: _all_served(cluster, subscribers), "events at all gateways"))
        ends_at = time.monotonic() + for_s
        while time.monotonic() < ends_at:
            report_at = min(ends_at, time.monotonic() + REPORT_INTERVAL_S)
            while time.monotonic() < report_at:
                time.sleep(0.2)
            cluster.check()
            found = {name: state for url in cluster.urls for name, state in states(url).items()}
            total = sum(each.events for at_gateway in subscribers for each in at_gateway.subscribers)
            print(f"{total:,} deliveries; " + ", ".join(f"{name}: {state}" for name, state in sorted(found.items())))
        is_complete = report(subscribers)
        return is_complete and all(state == "running" for state in found.values())
    finally:
        for each in subscribers:
            each.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; the command line is `--for DURATION`."""
    parser = argparse.ArgumentParser(prog="make cluster-demo", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--for", dest="for_", default="10m", help="how long to run after all services run: 60s, 10m")
    for_s = durations.seconds(parser.parse_args(arguments).for_)
    _keep_interrupts_from_children()
    folder = Path(tempfile.mkdtemp(prefix="tidegate-cluster-"))
    try:
        with Cluster(folder) as cluster:
            is_complete = demo(cluster, for_s)
            print("stopping ...", flush=True)
    except KeyboardInterrupt:
        print("stopped", flush=True)
        return 130
    except (AssertionError, TidegateError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("all processes have ended", flush=True)
    return 0 if is_complete else 1


def _all_served(cluster: Cluster, subscribers: Sequence[DemoSubscribers]) -> bool:
    cluster.check()
    return all(any(each.events for each in at_gateway.subscribers) for at_gateway in subscribers)


def _keep_interrupts_from_children() -> None:
    """Let only this process get a Ctrl-C: it ends the others, in their order.

    Children inherit the mask of this thread. The signal goes to another one, and Python runs the handler here.
    """

    def interrupt(*_: object) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # once is enough
        raise KeyboardInterrupt

    threading.Thread(target=threading.Event().wait, daemon=True).start()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])


if __name__ == "__main__":
    sys.exit(main())
