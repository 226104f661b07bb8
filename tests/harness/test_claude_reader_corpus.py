"""Real session files, where they are at hand: ``TURNLOG_CORPUS`` names a folder with ``claude`` and ``derived``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from tests.harness.claude_reading import Read
from turnlog.harness.claude.reader import READER
from turnlog.harness.reading import Reading

CORPUS = os.environ.get("TURNLOG_CORPUS")
pytestmark = pytest.mark.skipif(not CORPUS, reason="no corpus")
COUNTERS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


def corpus(*parts: str) -> Path:
    return Path(str(CORPUS)).joinpath(*parts)


def readings(root: Path) -> Iterator[Reading]:
    for source in READER.discover({}, [root]):
        decoder, offset = READER.decoder(source, None, lambda _: None), 0
        for raw in Path(source.path).read_bytes().split(b"\n"):
            decoder.line(raw, offset)
            offset += len(raw) + 1
        decoder.end()
        yield decoder.take()


def tokens(found: Read, *, children: bool = True) -> tuple[int, int]:
    """(calls, tokens), each call at its largest."""
    known: dict[str | None, list[int]] = {}
    for each in found.found:
        if each.kind == "usage" and (children or "/" not in each.session):
            used = orjson.loads(each.payload)["usage"]
            now = [used.get(name) or 0 for name in COUNTERS]
            known[each.call] = [max(pair) for pair in zip(known.get(each.call, now), now, strict=True)]
    return len(known), sum(map(sum, known.values()))


def test_real_sessions() -> None:
    found = Read(readings(corpus("claude", "entireio+cli")))
    # 1 137 requests with 89 044 763 tokens stand on whole lines, one more behind another record on its line; 57 with
    # 3 112 288 are known from notes of progress alone.
    assert tokens(found, children=False) == (1138, 89_123_603)
    assert tokens(found) == (1195, 92_235_891)
    assert sorted(found.kinds()) == ["glued", "not_json"]
    statuses = [orjson.loads(each.payload)["status"] for each in found.found if each.kind == "completed"]
    assert {each: statuses.count(each) for each in set(statuses)} == {"completed": 99, "interrupted": 5, "failed": 1}
    assert not {"<synthetic>"} & {each.model for each in found.facts}
    notes = [each.source.split(":")[0] for each in found.noted]
    assert {each: notes.count(each) for each in set(notes)} == {"compaction": 2, "unknown": 13}


def test_slices_of_one_session_are_one_session() -> None:
    folders = corpus("claude", "entireio+cli", "projects", "-Users-dev-cli").glob("2.0.76-*")
    found = [Read(readings(each)) for each in sorted(folders) if any(each.glob("198393f2*.jsonl"))]
    assert len(found) == 4
    assert len({each.session for read in found for each in read.found}) == 1


def test_a_file_with_random_session_ids_is_one_session() -> None:
    taken = list(readings(corpus("claude", "fartypie-d+usage-dashboard")))
    assert len(taken) == 61
    assert all(len({found.session for found in each.found}) == 1 for each in taken)


def test_children_and_workflows() -> None:
    found = Read(readings(corpus("claude", "fayzan123+rungraph")))
    children = [each for each in found.facts if each.relation == "subagent" and each.parent_turn is not None]
    assert len({each.session for each in found.found if "/" in each.session}) == 4
    assert {each.parent for each in children} == {"11111111-1111-4111-8111-111111111111"}


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("bom", ["byte_order_mark"]),
        ("crlf", []),
        ("invalid-utf8", ["invalid_utf8"]),
        ("lone-surrogate", ["lone_surrogate"]),
        ("nul-middle", ["nul_bytes"]),
        ("nul-tail", ["nul_bytes"]),
        ("truncated-tail", ["not_json"]),
        ("two-objects-on-a-line", ["glued"]),
        ("utf8-cut-in-char", ["not_json"]),
    ],
)
def test_damaged_copies_have_the_same_totals(name: str, kinds: list[str]) -> None:
    found = Read(readings(corpus("derived", f"claude-{name}.jsonl")))
    assert tokens(found) == (4, 105_818)
    assert found.kinds() == kinds
