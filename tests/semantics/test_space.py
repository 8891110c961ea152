"""Spaces: built, written, opened, refused."""

from __future__ import annotations

import contextlib
import json
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.semantics.spaces import CITY, documents, make
from tidegate import Space, SpaceError
from tidegate.semantics.builder import Document, build
from tidegate.semantics.corpora import open_corpus
from tidegate.semantics.runs import RunWriter, documents_of, merge_runs, postings_of
from tidegate.semantics.storage import FILES, Parameters
from tidegate.semantics.words import Analyser


@given(documents, st.integers(1, 3), st.integers(1, 6), st.integers(1, 30))
def test_space_holds_the_counted_terms(
    corpus: list[Document], least_documents: int, least_words: int, in_memory: int
) -> None:
    counts = [Counter(Analyser().terms(document.text)) for document in corpus]
    remaining = [(d, c) for d, c in zip(corpus, counts, strict=True) if sum(c.values()) >= least_words]
    having = Counter(term for _, c in remaining for term in c)
    terms = sorted(term for term, n in having.items() if n >= least_documents)
    parameters = Parameters(least_words, least_documents)
    with tempfile.TemporaryDirectory() as folder:
        if not terms:
            with pytest.raises(SpaceError):
                make(Path(folder, "space"), corpus, parameters, in_memory)
            return
        space = make(Path(folder, "space"), corpus, parameters, in_memory)
        assert [space.terms[n] for n in range(len(space.terms))] == terms
        assert [space.titles[n] for n in range(len(space.titles))] == [d.title for d, _ in remaining]
        assert space.peaks.tolist() == [max(c.values()) for _, c in remaining]
        for term in terms:
            actual = space.occurrences(term)
            assert actual is not None
            expected = [(n, c[term]) for n, (_, c) in enumerate(remaining) if term in c]
            assert list(zip(actual.documents.tolist(), actual.counts.tolist(), strict=True)) == expected
        assert space.corpus.left_out == len(corpus) - len(remaining)
        assert space.corpus.words == sum(sum(c.values()) for _, c in remaining)
        assert (space.size, space.corpus.name, space.parameters) == (len(remaining), "test", parameters)


def test_runs_and_one_pass_write_the_same_bytes(tmp_path: Path) -> None:
    make(tmp_path / "one", CITY)
    make(tmp_path / "many", CITY, in_memory=1)
    for name in (*FILES, "space.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "many" / name).read_bytes(), name


@given(documents, st.integers(1, 30), st.integers(2, 4))
def test_many_runs_are_merged_in_groups(corpus: list[Document], in_memory: int, fan_in: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        counting = RunWriter(Path(folder), Parameters(1, 1), in_memory)
        for place in sorted(range(len(corpus)), key=lambda n: n * 7 % 5):  # in some order
            counting.add(place, *corpus[place])
        counting.spill()
        runs = sorted(Path(folder).iterdir())
        merged = merge_runs(runs, Path(folder), fan_in)
        assert len(merged) <= fan_in
        assert list(documents_of(merged)) == sorted(documents_of(runs))
        counts = [Counter(Analyser().terms(document.text)) for document in corpus]
        expected = {term: [(n, c[term]) for n, c in enumerate(counts) if term in c] for term in set().union(*counts)}
        actual = [(term, list(zip(at.tolist(), of.tolist(), strict=True))) for term, at, of in postings_of(merged)]
        assert actual == sorted(expected.items())


KILLED = """
import sys
from tidegate.semantics.builder import build
from tidegate.semantics.corpora import open_corpus
from tidegate.semantics.storage import Parameters

def counted(number):
    if number == 5:
        print("five", flush=True)
        sys.stdin.read()

build(open_corpus(sys.argv[1]), sys.argv[2], parameters=Parameters(1, 1), postings_in_memory=10, counted=counted)
"""


def test_killed_build_continues_from_its_finished_parts(tmp_path: Path) -> None:
    (tmp_path / "city").mkdir()
    for document in CITY:
        (tmp_path / "city" / f"{document.title}.txt").write_text(document.text)
    corpus = open_corpus(tmp_path / "city")
    command = [sys.executable, "-c", KILLED, str(tmp_path / "city"), str(tmp_path / "space")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as builder:
        assert builder.stdout is not None
        assert builder.stdout.readline() == "five\n"
        with pytest.raises(SpaceError, match=r"space is being built by another process: wait for it, or stop it"):
            build(corpus, tmp_path / "space", parameters=Parameters(1, 1))
        builder.kill()
    finished = sorted(item.name for item in (tmp_path / "space.building").iterdir())
    assert [name for name in finished if name.startswith("part")] == ["part-00000", "part-00001"]

    seen: list[int] = []
    build(corpus, tmp_path / "space", parameters=Parameters(1, 1), postings_in_memory=10, counted=seen.append)
    assert seen == [5, 6]
    build(open_corpus(tmp_path / "city"), tmp_path / "whole", parameters=Parameters(1, 1))
    for name in (*FILES, "space.json"):
        assert (tmp_path / "space" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    assert sorted(item.name for item in tmp_path.iterdir()) == ["city", "space", "whole"]


class Stopped(BaseException):
    """An interruption such as Ctrl-C."""


def stop_after(number: int) -> Callable[[int], None]:
    def counted(read: int) -> None:
        if read == number:
            raise Stopped

    return counted


@pytest.mark.parametrize("changed", ["text", "parameters", "nothing"])
def test_build_starts_again_for_another_corpus_or_parameters(tmp_path: Path, changed: str) -> None:
    (tmp_path / "city").mkdir()
    for document in CITY:
        (tmp_path / "city" / f"{document.title}.txt").write_text(document.text)
    with pytest.raises(Stopped):
        build(
            *(open_corpus(tmp_path / "city"), tmp_path / "space"),
            parameters=Parameters(1, 1),
            postings_in_memory=1,
            counted=stop_after(4),
        )
    if changed == "text":
        (tmp_path / "city" / "Parking.txt").write_text("Parking is dear.")
    seen: list[int] = []
    parameters = Parameters(2 if changed == "parameters" else 1, 2)  # terms are chosen in the merge
    build(open_corpus(tmp_path / "city"), tmp_path / "space", parameters=parameters, counted=seen.append)
    assert seen == ([4, 5, 6] if changed == "nothing" else [1, 2, 3, 4, 5, 6])


def test_finished_parts_are_kept_when_the_disk_is_full(tmp_path: Path) -> None:
    (tmp_path / "city").mkdir()
    for document in CITY:
        (tmp_path / "city" / f"{document.title}.txt").write_text(document.text)

    def full(number: int) -> None:
        if number == 3:
            raise OSError(28, "No space left on device")

    corpus = open_corpus(tmp_path / "city")
    with pytest.raises(
        SpaceError, match=r"No space left on device; the finished parts are kept, and the same build continues"
    ):
        build(corpus, tmp_path / "space", parameters=Parameters(1, 1), postings_in_memory=1, counted=full)


def test_unknown_terms_have_no_occurrences(tmp_path: Path) -> None:
    space = make(tmp_path / "space", CITY)
    assert [space.occurrences(term) for term in ("", "a", "zzz", "laptops")] == [None] * 4
    assert repr(space) == f"<Space '{tmp_path / 'space'}': {len(space.terms)} terms over 6 documents>"


def test_failed_build_leaves_no_files(tmp_path: Path) -> None:
    def broken() -> object:
        yield CITY[0]
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        build(broken(), tmp_path / "space", parameters=Parameters(1, 1))  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_progress_is_reported(tmp_path: Path) -> None:
    seen: list[int] = []
    build(CITY, tmp_path / "space", parameters=Parameters(1, 1), counted=seen.append)
    assert seen == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("corpus", "parameters", "message"),
    [
        ([], Parameters(), "no document has 100 content words; 0 were read"),
        (CITY, Parameters(), r"no document has 100 content words; 6 were read: .* --least-words"),
        ([Document("a", "the of and")], Parameters(0, 1), "no document has 0 content words; 1 were read"),
        (CITY, Parameters(1, 7), r"no term occurs in 7 documents; 6 were read: .* --least-documents"),
        ([Document("", "energy")], Parameters(1, 1), "none of 1 documents has a title"),
    ],
)
def test_too_few_documents_or_terms_are_refused(
    tmp_path: Path, corpus: list[Document], parameters: Parameters, message: str
) -> None:
    with pytest.raises(SpaceError, match=message):
        build(corpus, tmp_path / "space", parameters=parameters)
    assert list(tmp_path.iterdir()) == []


def test_existing_folder_is_not_overwritten(tmp_path: Path) -> None:
    with pytest.raises(SpaceError, match=r"already exists: expected the name of a new folder"):
        build(CITY, tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(SpaceError, match=r"file/space can't be created: (Not a directory|File exists)"):
        build(CITY, tmp_path / "file" / "space")


@pytest.mark.parametrize("name", ["", ".", "/"])
def test_existing_path_without_a_name_is_refused(name: str) -> None:
    with pytest.raises(SpaceError, match=r"already exists: expected the name of a new folder"):
        build(CITY, name)


def change(key: str, value: object) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        header = json.loads((folder / "space.json").read_text())
        header[key] = value
        (folder / "space.json").write_text(json.dumps(header))

    return apply


def without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def cut(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-4])


def swapped(folder: Path) -> None:
    """Write decreasing offsets into a file of the right size."""
    path = folder / "postings.u64"
    data = path.read_bytes()
    path.write_bytes(data[:8] + data[16:24] + data[8:16] + data[24:])


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (shutil.rmtree, "space is no semantic space: it is no folder; 'tidegate semantics build' makes one"),
        (without("space.json"), "space is no semantic space: it has no space.json; 'tidegate semantics build'"),
        (lambda f: (f / "space.json").write_text("{"), r"space.json can't be read: Expecting property name"),
        (
            lambda f: (f / "space.json").write_text("[1]"),
            r"expected the format 'tidegate-space', not \[1\]: this is no",
        ),
        (change("format", "word2vec"), "expected the format 'tidegate-space', not 'word2vec'"),
        (
            change("version", 2),
            "the space has version 2, and this Tidegate reads 1: update Tidegate, or build it again",
        ),
        (change("version", "x"), "the space has version 'x', and this Tidegate reads 1: build it again"),
        (
            change("analysis", "german-1"),
            "built with text analysis 'german-1', but this Tidegate uses 'english-1': build",
        ),
        (change("corpus", {"name": "x"}), "space.json is damaged: KeyError: 'documents'"),
        (change("parameters", {"least_words": "many"}), "space.json is damaged: ValueError"),
        (change("files", {}), "space.json is damaged: it does not name terms.utf8"),
        (without("counts.u32"), "counts.u32 can't be read: No such file or directory; the space is incomplete"),
        (cut("documents.u32"), r"documents.u32 is damaged: it has \d+ bytes, not \d+: build the space again"),
        (swapped, "postings.u64 is damaged: it does not fit the other files: build the space again"),
    ],
)
def test_incomplete_space_is_refused(tmp_path: Path, harm: Callable[[Path], object], message: str) -> None:
    make(tmp_path / "space", CITY)
    harm(tmp_path / "space")
    with pytest.raises(SpaceError, match=message):
        Space.open(tmp_path / "space")


def test_verify_finds_a_changed_byte(tmp_path: Path) -> None:
    make(tmp_path / "space", CITY)
    path = tmp_path / "space" / "counts.u32"
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)
    Space.open(tmp_path / "space")
    with pytest.raises(SpaceError, match=r"counts.u32 is damaged: its bytes are not those that were written"):
        Space.open(tmp_path / "space", verify=True)


@given(st.sampled_from([*FILES, "space.json"]), st.integers(0), st.integers(0, 255))
def test_verify_finds_any_changed_byte(name: str, place: int, byte: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "space") / name
        make(path.parent, CITY)
        data = bytearray(path.read_bytes())
        changed = data[place % len(data)] != byte
        data[place % len(data)] = byte
        path.write_bytes(data)
        with contextlib.suppress(SpaceError):
            Space.open(path.parent)
        if changed and name != "space.json":
            with pytest.raises(SpaceError, match=f"{name} is damaged"):
                Space.open(path.parent, verify=True)


def test_space_pickles_by_its_folder(tmp_path: Path) -> None:
    space = make(tmp_path / "space", CITY)
    data = pickle.dumps(space)
    assert len(data) < 1_000
    assert repr(pickle.loads(data)) == repr(space)


def test_write_error_is_reported(tmp_path: Path) -> None:
    def cleaned_away() -> Iterator[Document]:
        yield CITY[0]
        for scratch in tmp_path.iterdir():
            shutil.rmtree(scratch)
        yield CITY[1]

    with pytest.raises(SpaceError, match="space can't be written: No such file or directory"):
        build(cleaned_away(), tmp_path / "space", parameters=Parameters(1, 1), postings_in_memory=10)


def test_verify_refuses_a_document_number_past_the_end(tmp_path: Path) -> None:
    make(tmp_path / "space", CITY)
    path = tmp_path / "space" / "documents.u32"
    path.write_bytes(b"\xff" * len(path.read_bytes()))
    with pytest.raises(SpaceError, match=r"documents.u32 is damaged"):
        Space.open(tmp_path / "space", verify=True)
