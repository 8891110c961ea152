"""`Home`, and commands on data folders that are missing, locked or incomplete."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.semantics.spaces import CITY, make
from tidegate.cli.data_folder.home import MASK_KEY, Home
from tidegate.cli.main import app
from tidegate.cli.profile import Profile
from tidegate.errors import EnvironmentProblem, SpaceError, TidegateError
from tidegate.semantics import Embedding

runner = CliRunner()
FILE = "streams: {raw: {schema: {n: int64}}}\nservices: {all: {from: raw}}\n"


@pytest.mark.parametrize(
    "command", [["services"], ["publish", "raw"], ["backtest", "all", "n > 1"], ["gateway", "--port", "0"]]
)
def test_folder_without_a_registry_is_refused(command: list[str], tmp_path: Path) -> None:
    result = runner.invoke(app, [*command, "--data", str(tmp_path / "none")])
    assert isinstance(result.exception, TidegateError)
    assert "there is no Tidegate in" in str(result.exception)
    assert "tidegate up" in str(result.exception)


def test_broker_starts_without_services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served = []
    monkeypatch.setattr(
        "tidegate.cli.commands.gateway.serve", lambda home, *_, broker, **__: served.append((home, broker))
    )
    data = tmp_path / "new"
    result = runner.invoke(app, ["gateway", "--data", str(data), "--port", "0", "--broker", "no name"])
    assert "expected a broker's name of letters" in str(result.exception)
    assert not data.exists()
    assert runner.invoke(app, ["gateway", "--data", str(data), "--port", "0", "--broker", "city"]).exit_code == 0
    ((home, broker),) = served
    assert (home.folder, broker) == (data, "city")
    home.existing_registry().close()


def test_unknown_stream_service_or_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(FILE)
    assert runner.invoke(app, ["apply", str(file), "--data", str(tmp_path)]).exit_code == 0
    result = runner.invoke(app, ["publish", "rwa", "--data", str(tmp_path)])
    assert "did you mean 'raw'?" in str(result.exception)
    result = runner.invoke(app, ["backtest", "al", "n > 1", "--data", str(tmp_path)])
    assert str(result.exception) == "no service or stream 'al'; expected one of all, raw"
    result = runner.invoke(app, ["publish", "raw", str(tmp_path / "none.ndjson"), "--data", str(tmp_path)])
    assert "No such file" in str(result.exception)


def test_applying_the_same_file_twice_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(FILE)
    first = runner.invoke(app, ["apply", str(file), "--data", str(tmp_path)])
    assert first.stdout == "added      raw  version 1\nadded      all  version 1\n"
    again = runner.invoke(app, ["apply", str(file), "--data", str(tmp_path)])
    assert again.stdout == "unchanged  raw  version 1\nunchanged  all  version 1\n"
    result = runner.invoke(app, ["apply", str(file), "--data", str(tmp_path), "--json"])
    assert json.loads(result.stdout) == {
        "added": {},
        "changed": {},
        "unchanged": {"raw": 1, "all": 1},
        "removed": {},
        "states": {},
    }


def test_mask_key_is_created_once_and_private_to_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MASK_KEY, raising=False)
    home = Home(tmp_path)
    key = home.mask_key()
    assert len(key) == 64
    assert home.mask_key() == key
    assert stat.S_IMODE((tmp_path / "mask.key").stat().st_mode) == 0o600
    monkeypatch.setenv(MASK_KEY, "from outside")
    assert home.mask_key() == b"from outside"


def test_folder_is_locked_by_one_process(tmp_path: Path) -> None:
    home = Home(tmp_path)
    already = pytest.raises(EnvironmentProblem, match=r"runs in .* already \(process \d+\)")
    with home.locked(), already, home.locked():
        pytest.fail("two at once")
    with home.locked():
        pass


def test_summary_of_a_backtest() -> None:
    from tidegate.cli.commands.backtest import summary
    from tidegate.pipelines.backtest import Backtest

    result = Backtest(7, 2, "2026-01-01T00:00:00Z", "2026-01-01T00:00:05Z", [{"n": 4}])
    lines = ["2 of 7 events of all match (28.57%)", "from 2026-01-01T00:00:00Z to 2026-01-01T00:00:05Z", '{"n": 4}']
    assert summary("all", result).splitlines() == lines
    assert summary("all", Backtest(0, 0, None, None, [])) == "0 of 0 events of all match"


def test_space_is_the_option_or_the_profiles_or_the_folders(tmp_path: Path) -> None:
    home, with_profile = Home(tmp_path), Home(tmp_path, Profile(semantics="of the profile"))
    assert home.space() is None
    make(tmp_path / "space", CITY)
    assert home.space() == tmp_path / "space"
    assert with_profile.space() == Path("of the profile")
    assert with_profile.space("named") == Path("named")
    semantics = home.semantics()
    assert semantics is not None
    assert semantics.relatedness(["parking"], ["garage"], frozenset(), frozenset())[0, 0] > 0.5
    with pytest.raises(SpaceError, match=r"of the profile is no semantic space: it is no folder"):
        with_profile.semantics()


def test_no_semantics_without_a_space_and_an_embedding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Embedding, "installed", staticmethod(lambda: False))
    assert Home(tmp_path).semantics() is None


@pytest.mark.parametrize("command", ["up", "gateway"])
def test_invalid_space_is_refused_before_the_start(tmp_path: Path, command: str) -> None:
    args = [command, "--data", str(tmp_path / "data"), "--port", "0", "--semantics", str(tmp_path / "none")]
    with pytest.raises(SpaceError, match=r"none is no semantic space: it is no folder; 'tidegate semantics build'"):
        runner.invoke(app, args, catch_exceptions=False)


def test_publish_accepts_a_json_array(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(FILE)
    assert runner.invoke(app, ["apply", str(file), "--data", str(tmp_path)]).exit_code == 0
    listed = tmp_path / "listed.json"
    listed.write_text('\n[{"n": 1},\n {"n": 2}]\n', encoding="utf-8")
    result = runner.invoke(app, ["publish", "raw", str(listed), "--data", str(tmp_path), "--json"])
    assert json.loads(result.stdout) == {"accepted": 2, "duplicates": 0, "refused": 0, "cursor": None}
    listed.write_text('[{"n": 1},', encoding="utf-8")
    result = runner.invoke(app, ["publish", "raw", str(listed), "--data", str(tmp_path)])
    assert "starts like a JSON array, but is not valid JSON" in str(result.exception)
