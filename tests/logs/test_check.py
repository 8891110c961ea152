"""What `tidegate check` finds in a log of files."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from tests.gateway.running import World
from tests.logs.contract import record
from tidegate.cli.main import app
from tidegate.errors import EnvironmentProblem
from tidegate.logs import SegmentLog, files
from tidegate.logs.check import check_log


def filled(folder: Path) -> list[files.Segment]:
    """Write twelve segments, and return them."""
    log = SegmentLog(folder, segment_bytes=100)
    log.create("gps")
    for n in range(100):
        log.append("gps", "0", [record(n)])
    log.close()
    return files.segments_of(str(folder / "gps" / "0"))


def test_whole_log_has_no_findings(tmp_path: Path) -> None:
    segments = filled(tmp_path)
    assert len(segments) > 5
    assert list(check_log(tmp_path)) == []
    with open(segments[-1].path, "ab") as file:
        file.write(b'{"n":')  # the writer is at it
    segments[0].unlink()  # expired
    assert list(check_log(tmp_path)) == []


def test_lost_segments_and_damaged_records_are_found(tmp_path: Path) -> None:
    segments = filled(tmp_path)
    segments[1].unlink()
    segments[2].unlink()
    content = Path(segments[4].path).read_bytes()
    lines = content.splitlines(keepends=True)
    zeros = bytes(len(lines[1]) - 1) + b"\n"  # what a power failure may leave
    Path(segments[4].path).write_bytes(lines[0] + zeros + b"".join(lines[2:]))
    Path(segments[5].path).write_bytes(Path(segments[5].path).read_bytes()[:-3])
    lost, damaged, rest, torn = check_log(tmp_path)
    assert (lost.kind, lost.begin, lost.end) == ("lost", segments[1].base, segments[3].base)
    assert (damaged.kind, damaged.begin) == ("damaged", segments[4].base + len(lines[0]))
    assert damaged.end - damaged.begin == len(zeros)
    assert (rest.kind, torn.kind) == ("damaged", "lost")
    assert (rest.end, torn.begin, torn.end) == (torn.begin, segments[6].base - 3, segments[6].base)


def test_command_lists_findings_with_remedies(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.append(20)
    world.log.close()
    world.registry.close()
    options = ["--data", str(tmp_path)]
    assert CliRunner().invoke(app, ["check", *options]).output == "nothing is lost or damaged\n"
    folder = tmp_path / "log" / "gps" / "gps_taxi.0"
    (segment,) = folder.glob("*.log")
    first, second, rest = segment.read_bytes().split(b"\n", 2)
    segment.write_bytes(first + b"\n")
    (folder / f"{len(first) + len(second) + 2:020d}.log").write_bytes(rest)
    result = CliRunner().invoke(app, ["check", *options])
    assert result.exit_code == 1
    assert "gps/gps_taxi.0 from" in result.output
    assert "readers get a gap until `tidegate repair gps` has made it again" in result.output
    (found,) = json.loads(CliRunner().invoke(app, ["check", "--json", *options]).output)
    assert (found["stream"], found["kind"], found["end"] - found["begin"]) == ("gps", "lost", len(second) + 1)


def test_what_check_and_repair_can_not_read_is_told(tmp_path: Path) -> None:
    World(tmp_path).registry.close()
    profile = tmp_path / "kafka.yaml"
    profile.write_text("log: {kafka: 'host:1'}")
    for command in ("check", "repair"):
        result = CliRunner().invoke(app, [command, "--data", str(tmp_path), "--profile", str(profile)])
        assert isinstance(result.exception, EnvironmentProblem)
        assert "a log in Kafka is checked by Kafka itself" in str(result.exception)
    result = CliRunner().invoke(app, ["repair", "gsp", "--data", str(tmp_path)])
    assert str(result.exception) == "no service 'gsp'; did you mean 'gps'?"
    assert CliRunner().invoke(app, ["repair", "--data", str(tmp_path)]).output == "no output has lost a segment\n"
