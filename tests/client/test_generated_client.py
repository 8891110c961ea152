"""The blocking client is generated from the asyncio client, is up to date, and has the same public methods."""

from __future__ import annotations

import inspect
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tidegate.client import AsyncClient, AsyncSubscription, Client, Subscription

SCRIPT = Path(__file__).parents[2] / "scripts" / "generate_sync_client.py"
PUBLIC_METHODS = """
    close services service status discover watch quarantine replay apply
    publish events history subscribe
    subscriptions subscription create_subscription change_subscription delete_subscription enable_subscription
    renew_subscription adopt_subscription explain dead_letters redeliver consume
    keys create_key rotate_key revoke_key
    links add_link change_link remove_link trust_origin distrust_origin
""".split()


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def public_methods(of: type) -> dict[str, inspect.Signature]:
    members = inspect.getmembers(of, inspect.isfunction)
    return {name: inspect.signature(member) for name, member in members if not name.startswith("_")}


def test_generated_files_are_up_to_date() -> None:
    checked = subprocess.run([sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_stale_missing_and_extra_files_are_found(script: dict[str, Any], tmp_path: Path) -> None:
    source, target = tmp_path / "async_client", tmp_path / "sync_client"
    for folder in (source, target):
        folder.mkdir()
    for name in ("keys.py", "links.py", "client.py"):
        shutil.copy(script["SOURCE"] / name, source / name)
        shutil.copy(script["TARGET"] / name, target / name)
    assert script["stale_files"](source, target) == {}
    changed = source / "keys.py"
    changed.write_text(changed.read_text().replace("async def revoke_key(", "async def revoke("))
    (target / "links.py").unlink()
    (target / "left.py").touch()
    stale = script["stale_files"](source, target)
    assert stale.keys() == {target / "keys.py", target / "links.py", target / "left.py"}
    assert "    def revoke(" in stale[target / "keys.py"]
    assert stale[target / "links.py"] == (script["TARGET"] / "links.py").read_text()
    assert stale[target / "left.py"] is None


@pytest.mark.parametrize("text", ["asyncio.gather()\n", "x = anyio.Lock()\nawait(x)\n", "response.aiter_lines()\n"])
def test_code_without_a_rule_is_refused(script: dict[str, Any], tmp_path: Path, text: str) -> None:
    (tmp_path / "module.py").write_text(text)
    with pytest.raises(ValueError, match=r"module.py: no rule for '\w+' near line \d; add one to RULES"):
        script["generated"](tmp_path / "module.py")


def test_both_clients_have_all_public_methods() -> None:
    assert sorted(public_methods(Client)) == sorted(public_methods(AsyncClient)) == sorted(PUBLIC_METHODS)


@pytest.mark.parametrize(("blocking", "awaited"), [(Client, AsyncClient), (Subscription, AsyncSubscription)])
def test_methods_of_both_clients_have_the_same_signatures(blocking: type, awaited: type) -> None:
    signatures = public_methods(blocking)
    assert {name: re.sub("Async", "", str(signature)) for name, signature in public_methods(awaited).items()} == {
        name: str(signature) for name, signature in signatures.items()
    }
    assert not any(inspect.iscoroutinefunction(getattr(blocking, name)) for name in signatures)
