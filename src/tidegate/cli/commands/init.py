"""`tidegate init`: write a service file for the events of a file or a topic."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidegate.cli.input import options
from tidegate.cli.input.durations import seconds
from tidegate.cli.profile import EMBEDDED
from tidegate.errors import EnvironmentProblem
from tidegate.services import loads
from tidegate.services.check import check

if TYPE_CHECKING:
    from tidegate.ingress.feeds.sample import SourceSample

_TOPIC = re.compile(r"(kafka|mqtt):(.+)")


@dataclass(frozen=True, slots=True)
class _Source:
    """What the source of the new stream is called, and its settings."""

    name: str
    settings: dict[str, dict[str, Any]]
    sample: SourceSample


def init(
    sample: Annotated[
        str,
        typer.Argument(
            help="A file (.csv, .ndjson, .jsonl, .parquet, also with .gz, .bz2 or .zst), kafka:TOPIC or mqtt:TOPIC."
        ),
    ],
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="The file to write; - for standard output. Default: NAME.yaml")
    ] = None,
    name: Annotated[str | None, typer.Option(help="The name of the stream; default: from the file or topic.")] = None,
    broker: Annotated[str | None, typer.Option(help="The broker of a topic, host:port.")] = None,
    connection: Annotated[str | None, typer.Option(help="A connection of the profile, instead of --broker.")] = None,
    columns: Annotated[
        str | None, typer.Option(help="The attributes of CSV without a header line, separated by commas.")
    ] = None,
    events: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many events to look at.")] = 10_000,
    wait: Annotated[str, typer.Option(help="How long to wait for messages of a topic.")] = "10s",
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    data: options.Data = options.DATA,
    profile: options.Profile = EMBEDDED,
) -> None:
    """Write a service file for sample events: schema, event time and key are inferred from them.

    The file is commented, passes `tidegate validate`, and runs with `tidegate up`.
    """
    from tidegate.cli.input.service_file import stream_name, written
    from tidegate.services.sample import infer

    named_columns = tuple(part.strip() for part in columns.split(",")) if columns else ()
    topic = _TOPIC.fullmatch(sample)
    if topic is None:
        source = _from_file(sample, events, named_columns)
    else:
        source = _Topic(topic[1], topic[2], broker, connection, data, profile).source(
            events, seconds(wait), named_columns
        )
    if not source.sample.events:
        raise EnvironmentProblem(f"{sample!r} has no event: {source.sample.refused} records could not be read")
    inferred = infer(source.sample.events, is_text=source.sample.is_text)
    stream = name or stream_name(source.name)
    text = written(stream, source.settings, inferred, command=f"tidegate init {sample}", refused=source.sample.refused)
    check(loads(text))
    if output == "-":
        typer.echo(text, nl=False)
        return
    path = Path(output or f"{stream}.yaml")
    _write(path, text, force=force)
    typer.echo(f"wrote {path}: check it, then run: tidegate up {path}")


def _write(path: Path, text: str, *, force: bool) -> None:
    try:
        with path.open("w" if force else "x") as file:
            file.write(text)
    except FileExistsError as error:
        raise EnvironmentProblem(
            f"{str(path)!r} exists; overwrite it with --force, or name another --output"
        ) from error
    except OSError as error:
        raise EnvironmentProblem(f"can't write {str(path)!r}: {error.strerror}") from error


def _from_file(sample: str, limit: int, columns: tuple[str, ...]) -> _Source:
    from tidegate.ingress.feeds.sample import sample_file

    path = Path(sample)
    if not path.is_file():
        raise EnvironmentProblem(f"no file {sample!r}; a topic is written as kafka:{sample} or mqtt:{sample}")
    settings: dict[str, Any] = {"path": str(path.absolute())}
    if columns:
        settings["columns"] = list(columns)
    return _Source(path.name.partition(".")[0] or path.name, {"files": settings}, sample_file(path, limit, columns))


@dataclass(frozen=True, slots=True)
class _Topic:
    """A topic, and how to reach its broker."""

    kind: str
    topic: str
    broker: str | None
    connection: str | None
    data: str
    profile: str

    def source(self, limit: int, wait_s: float, columns: tuple[str, ...]) -> _Source:
        from tidegate.ingress.feeds.sample import sample_messages

        messages = self._kafka(limit, wait_s) if self.kind == "kafka" else self._mqtt(limit, wait_s)
        sample = sample_messages(messages, limit, columns)
        settings: dict[str, Any] = {"topic": self.topic}
        if self.connection is not None:
            settings["connection"] = self.connection
        elif self.broker is not None:
            settings["brokers" if self.kind == "kafka" else "broker"] = self.broker
        if sample.format != "json":
            settings["format"] = sample.format
        if columns:
            settings["columns"] = list(columns)
        return _Source(self.topic, {self.kind: settings}, sample)

    def _kafka(self, limit: int, wait_s: float) -> list[bytes]:
        from tidegate.ingress.connections import FeedResources, KafkaConnection
        from tidegate.ingress.feeds.sample import sample_kafka

        connection = KafkaConnection(self.broker or "localhost:9092")
        if self.connection is not None:
            connections = options.home(self.data, self.profile).runner_resources().connections
            connection = FeedResources(connections).connection(self.connection, KafkaConnection)
        return sample_kafka(self.topic, connection, limit, wait_s)

    def _mqtt(self, limit: int, wait_s: float) -> list[bytes]:
        from tidegate.ingress.connections import FeedResources, MqttConnection
        from tidegate.ingress.feeds.sample import sample_mqtt

        connection = MqttConnection(self.broker or "localhost:1883")
        if self.connection is not None:
            connections = options.home(self.data, self.profile).runner_resources().connections
            connection = FeedResources(connections).connection(self.connection, MqttConnection)
        return sample_mqtt(self.topic, connection, limit, wait_s)
