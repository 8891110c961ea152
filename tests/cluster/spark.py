"""A standalone Spark cluster of real processes on loopback, whose executors tests can kill."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.polling import until
from tests.ports import free_port

PROFILE = """
master: {address}
checkpoints: {checkpoints}
spark:
  spark.authenticate: false
  spark.network.crypto.enabled: false
  spark.driver.host: 127.0.0.1
  spark.driver.bindAddress: 127.0.0.1
  spark.executor.memory: 512m
"""


class SparkCluster:
    """A master and its workers. Leaving the context ends all of them, and their executors."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._started = folder, ExitStack()
        self._port = free_port()
        self.address = f"spark://127.0.0.1:{self._port}"
        self.workers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> SparkCluster:
        args = ("--host", "127.0.0.1", "--port", str(self._port), "--webui-port", "0")
        self._daemon("master", "org.apache.spark.deploy.master.Master", *args)
        until(lambda: "New state: ALIVE" in self._output("master"), "the master of Spark")
        return self

    def __exit__(self, *_: object) -> None:
        self._started.close()

    @property
    def profile(self) -> str:
        """The keys of a profile that runs services here."""
        return PROFILE.format(address=self.address, checkpoints=self._folder / "states")

    def add_worker(self, cores: int) -> subprocess.Popen[bytes]:
        """Start a worker with so many slots, and wait until the master knows it."""
        name = f"worker{len(self.workers)}"
        args = ("--host", "127.0.0.1", "--cores", str(cores), "--memory", "1g", "--webui-port", "0")
        work = ("--work-dir", str(self._folder / name), self.address)
        known = self._output("master").count("Registering worker")
        worker = self._daemon(name, "org.apache.spark.deploy.worker.Worker", *args, *work)
        until(lambda: self._output("master").count("Registering worker") > known, "a worker of Spark")
        self.workers.append(worker)
        return worker

    def executors(self) -> list[int]:
        """Return the process ids of all executors that live."""
        return [pid for worker in self.workers for pid in _executors(worker.pid)]

    def kill_executor(self, pid: int) -> None:
        """End an executor with SIGKILL, and wait until it is gone."""
        os.kill(pid, signal.SIGKILL)
        until(lambda: pid not in self.executors(), "an executor to end")

    def kill_worker(self, worker: subprocess.Popen[bytes]) -> None:
        """End a worker with SIGKILL, and its executors too: its machine is lost."""
        executors = _executors(worker.pid)
        worker.kill()
        worker.wait()
        for pid in executors:
            os.kill(pid, signal.SIGKILL)
        self.workers.remove(worker)

    def _output(self, name: str) -> str:
        return (self._folder / f"{name}.txt").read_text()

    def _daemon(self, name: str, class_: str, *args: str) -> subprocess.Popen[bytes]:
        return self._started.enter_context(_running(class_, *args, output=self._folder / f"{name}.txt"))


@contextmanager
def _running(class_: str, *args: str, output: Path) -> Iterator[subprocess.Popen[bytes]]:
    import pyspark

    home = Path(pyspark.__file__).parent
    env = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
    with output.open("wb") as written:
        process = subprocess.Popen(
            [str(home / "bin" / "spark-class"), class_, *args], stdout=written, stderr=written, env=env
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(30)


def _executors(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        found = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except FileNotFoundError:
        return []
    return [child for child in found if _is_executor(child)]


def _is_executor(pid: int) -> bool:
    try:
        return b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return False
