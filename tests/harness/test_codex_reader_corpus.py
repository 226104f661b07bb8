"""Real rollouts, where they are at hand (TURNLOG_CORPUS): the numbers that are known of them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.harness.codex_rollouts import NAMES, ends, gaps, of_kind, payload
from turnlog.harness.codex.reader import READER
from turnlog.harness.codex.sources import thread_of
from turnlog.harness.reading import Reading, Source

CORPUS = Path(os.environ.get("TURNLOG_CORPUS", ""))
pytestmark = pytest.mark.skipif("TURNLOG_CORPUS" not in os.environ, reason="TURNLOG_CORPUS names no folder")

Sums = tuple[int, int, int, int, int]


def read_all(paths: Iterable[Path]) -> dict[Path, Reading]:
    files = list(paths)
    lines = {path: path.read_bytes().split(b"\n") for path in files}
    threads: dict[str, Path] = {}
    for path, content in lines.items():
        try:
            head = orjson.loads(content[0])
        except orjson.JSONDecodeError:
            continue
        threads.setdefault(head.get("payload", head).get("id"), path)

    def find(thread: str) -> list[bytes] | None:
        return lines[threads[thread]] if thread in threads else None

    readings = {}
    for path in files:
        decoder = READER.decoder(Source("codex", str(path), "jsonl", thread_of(path.name)), None, find)
        offset = 0
        for line in lines[path]:
            if line:
                decoder.line(line, offset)
            offset += len(line) + 1
        decoder.end()
        readings[path] = decoder.take()
    return readings


def sums(readings: Iterable[Reading]) -> Sums:
    """Return (calls, input, cached, output, reasoning), each call once."""
    calls: dict[Any, dict[str, int]] = {}
    for reading in readings:
        calls |= {each.call: payload(each)["usage"] for each in of_kind(reading, "usage")}
    added = [sum(used.get(name, 0) for used in calls.values()) for name in NAMES[:4]]
    return len(calls), added[0], added[1], added[2], added[3]


def one(pattern: str) -> Reading:
    (reading,) = read_all(CORPUS.glob(pattern)).values()
    return reading


@pytest.mark.parametrize("version", ["0.128.0-appserver", "0.140.0-appserver"])
def test_generated_threads_come_to_what_the_model_reported(version: str) -> None:
    known = orjson.loads((CORPUS / "codex/generated/ORACLE.json").read_bytes())["threads"]
    readings = read_all((CORPUS / "codex/generated" / version).rglob("rollout-*.jsonl"))
    found: dict[str, Sums] = {}
    models: dict[str, dict[str, int]] = {}
    for path, reading in readings.items():
        thread = reading.facts[0].session
        assert reading.troubles == [], path
        found[thread] = sums([reading])
        for each in of_kind(reading, "usage"):
            by_model = models.setdefault(thread, {})
            by_model[payload(each)["model"]] = by_model.get(payload(each)["model"], 0) + 1
    expected = {thread: known[thread] for thread in found}
    assert len(found) == len(readings)
    members = ("responses", "input", "cached", "output", "reasoning")
    assert found == {thread: tuple(each[name] for name in members) for thread, each in expected.items()}
    assert models == {thread: each["by_model"] for thread, each in expected.items()}


def test_paginated_threads_count_their_own_responses() -> None:
    readings = read_all((CORPUS / "codex/generated/0.171.0-exec").rglob("rollout-*.jsonl"))
    by_thread = {reading.facts[0].session[9:13]: reading for reading in readings.values()}
    assert sums(readings.values())[0] == 32
    assert sums([by_thread["35e5"]])[1::2] == (22_405, 110)
    assert sums([by_thread["7208"]]) == (6, 426_823, 219_692, 765, 130)
    assert ends(by_thread["6fef"])[0][1] == "failed"
    assert sums([by_thread["6fef"]])[0] == 0
    assert sums([by_thread["76db"]])[0] == 0
    assert [status for _, status in ends(by_thread["540c"])] == ["completed"]
    assert all(reading.troubles == [] for reading in readings.values())


def test_a_real_session_has_39_calls() -> None:
    reading = one("codex/AcidicSoil+codex-session-view/.sample_session/*.jsonl")
    calls, read, _, written, _ = sums([reading])
    assert (calls, read + written, reading.dropped) == (39, 1_121_566, 39)
    assert gaps(reading) == []


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("MaxGhenis+logpile/replay-multisecond.jsonl", (5000, 3000, 500, 50)),
        ("MaxGhenis+logpile/counter-reset-epochs.jsonl", (1900, 1500, 160, 60)),
        ("MaxGhenis+logpile/fresh-same-second.jsonl", (3000, 2400, 120, 30)),
        ("MaxGhenis+logpile/*parent-thread.jsonl", (100, 50, 10, 1)),
        ("MaxGhenis+logpile/*leaf-thread.jsonl", (5000, 2000, 200, 50)),
        ("ccusage+ccusage/fork-local-same-second-modern.jsonl", (3000, 2400, 120, 30)),
        ("ccusage+ccusage/replay-multisecond-modern.jsonl", (5000, 3000, 500, 50)),
    ],
)
def test_published_sums_of_others(pattern: str, expected: tuple[int, ...]) -> None:
    assert sums([one(f"codex/{pattern}")])[1:] == expected


def test_rate_limits_without_info_are_limits() -> None:
    reading = one("codex/jazzyalex*/codex_053_rate_limit.jsonl")
    assert len(reading.noted) == 2
    assert len(of_kind(reading, "usage")) == 1


def test_damaged_copies_come_to_the_sums_of_the_whole() -> None:
    whole = sums([one("codex/generated/0.171.0-exec/**/*333f*.jsonl")])
    readings = read_all((CORPUS / "derived").glob("codex-*.jsonl"))
    assert len(readings) == 5
    assert {path.stem: sums([reading]) for path, reading in readings.items()} == {path.stem: whole for path in readings}
    assert {path.stem: [each.kind for each in reading.troubles] for path, reading in readings.items()} == {
        "codex-duplicated-tail": [],
        "codex-no-session-meta": [],
        "codex-out-of-order": [],
        "codex-torn-tail": ["not_json"],
        "codex-torn-then-resumed": ["torn"],
    }


def test_every_file_is_read_and_says_the_same_text_again() -> None:
    for path, reading in read_all((CORPUS / "codex").rglob("*.jsonl")).items():
        data = path.read_bytes()
        for said in reading.spoken:
            end = data.find(b"\n", said.offset)
            assert READER.passages(data[said.offset : end if end >= 0 else len(data)]) == said.passages, path
