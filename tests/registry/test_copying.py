"""Copies of a registry between SQLite and PostgreSQL, as backups make them."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.registry import stores
from tests.registry.conftest import MakeRegistry, MakeStore
from tests.registry.test_definitions import CITY
from tests.registry.test_subscriptions import FULL, PLAIN
from tidegate.errors import RegistryError
from tidegate.registry import Registry, open_registry
from tidegate.registry.copying import copy_registry
from tidegate.registry.sql import SqlRegistry


def filled(registry: Registry) -> None:
    registry.apply(CITY)
    registry.subscribe(PLAIN, "c1")
    registry.subscribe(FULL, None)
    for n in range(3):
        registry.add_dead_letter("s1", f"c{n}", b'{"vid": "\xff"}', "gone", 1)
    registry.create_key("van 7", "provider")
    registry.add_link("fleet")


def contents(registry: Registry) -> list[object]:
    return [
        registry.revision(),
        registry.definitions(),
        registry.services(),
        registry.subscriptions(),
        registry.subscriptions_revision(),
        registry.dead_letters("s1"),
        registry.keys(),
        registry.links(),
    ]


def test_copy_has_everything_and_goes_on(registry: Registry, new_store: MakeStore) -> None:
    filled(registry)
    backup, restored = open_registry(new_store()), open_registry(new_store())
    assert isinstance(registry, SqlRegistry)
    copy_registry(registry, backup)
    copy_registry(backup, restored)
    assert contents(backup) == contents(restored) == contents(registry)
    # The next number of a dead letter is free in the copy, too.
    before = {letter.id for letter in restored.dead_letters("s1")}
    assert restored.add_dead_letter("s1", "c9", b"{}", "gone", 1).id not in before
    backup.close()
    restored.close()


@pytest.mark.postgres
@pytest.mark.xdist_group("postgres")
def test_copy_from_postgres_to_a_file_and_back(postgres: str, tmp_path: Path) -> None:
    source, target = open_registry(stores.new_schema(postgres)), open_registry(stores.new_schema(postgres))
    file = open_registry(stores.new_file(tmp_path))
    filled(source)
    copy_registry(source, file)
    copy_registry(file, target)
    assert contents(target) == contents(source) == contents(file)
    before = {letter.id for letter in target.dead_letters("s1")}
    assert target.add_dead_letter("s1", "c", b"{}", "gone", 1).id not in before
    for registry in (source, file, target):
        registry.close()


def test_copy_is_of_one_moment(registry: Registry, make: MakeRegistry, new_store: MakeStore) -> None:
    filled(registry)
    other, stop = make(), threading.Event()

    def change() -> None:
        n = 0
        while not stop.is_set():
            n += 1
            other.acknowledge("s1", f"c{n}")
            other.acknowledge("s2", f"c{n}")

    changing = threading.Thread(target=change)
    changing.start()
    try:
        for _ in range(5):
            copy = open_registry(new_store())
            assert isinstance(registry, SqlRegistry)
            copy_registry(registry, copy)
            first, second = (copy.subscription(name).cursor for name in ("s1", "s2"))
            if first is not None and second is not None and second != "c1":
                assert int(first[1:]) - int(second[1:]) in (0, 1)
            copy.close()
    finally:
        stop.set()
        changing.join()


def test_registry_that_is_in_use_is_not_overwritten(registry: Registry, new_store: MakeStore) -> None:
    filled(registry)
    other = open_registry(new_store())
    other.apply(CITY)
    assert isinstance(registry, SqlRegistry)
    with pytest.raises(RegistryError, match="expected an empty registry"):
        copy_registry(registry, other)
    assert other.subscriptions() == {}
    other.close()
