from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from tests.bench.corpus import generate
from tests.bench.corpus_truth import COUNTERS, Truth
from tests.unit.scan_files import (
    answer,
    claude,
    codex,
    count,
    gaps,
    meta,
    scan,
    started,
    totals,
    used,
    uuid7,
    variables,
)
from turnlog.harness.opencode.database import Database
from turnlog.intake import readers
from turnlog.intake.scan import Scan, scan_usage

MESSAGE = {
    "role": "assistant",
    "parentID": "msg_u",
    "modelID": "gpt-5.2",
    "providerID": "openai",
    "cost": 0.25,
    "finish": "stop",
    "time": {"created": 1_788_257_000_000, "completed": 1_788_257_009_000},
    "tokens": {"total": 66, "input": 10, "output": 20, "reasoning": 6, "cache": {"read": 30, "write": 0}},
}


def opencode(folder: Path, sessions: dict[str, list[dict[str, object]]], version: str = "1.18.33") -> None:
    """Write the older JSON storage: one file for each conversation and message."""
    storage = folder / "data" / "opencode" / "storage"
    for number, (session, messages) in enumerate(sessions.items()):
        info = {"id": session, "version": version, "directory": "/home/dev/web", "title": session}
        info["time"] = {"created": 1_788_256_000_000 + number * 50_000_000}  # type: ignore[assignment]
        place = storage / "session" / "global" / f"{session}.json"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(info))
        for index, message in enumerate(messages):
            name = f"msg_{session}_{index}"
            where = storage / "message" / session / f"{name}.json"
            where.parent.mkdir(parents=True, exist_ok=True)
            where.write_text(json.dumps({"id": name, "sessionID": session, **message}))


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Truth:
    return generate(tmp_path_factory.mktemp("history") / "corpus", megabytes=12, seed=7)


def rows(found: Scan) -> dict[tuple[str, str, str], list[int]]:
    told: dict[tuple[str, str, str], list[int]] = {}
    for buckets in found.buckets.values():
        for each in buckets:
            day = f"{each.start // 96}"
            sums = told.setdefault((each.kind.provider, each.kind.model or "", day), [0] * len(COUNTERS))
            for place, name in enumerate(COUNTERS):
                sums[place] += getattr(each.sums, name) or 0
    return told


def test_a_whole_history_is_counted_exactly_by_provider_model_and_day(truth: Truth) -> None:
    found = scan_usage(readers(), truth.variables)
    days = {row.day for row in truth.rows}
    first = min(days)
    told = rows(found)
    known = {(row.provider, row.model, row.day): row.sums for row in truth.rows}
    assert len(told) == len(known)
    for (provider, model, day), sums in known.items():
        number = _number(day)
        assert told[provider, model, str(number)] == sums, (provider, model, day)
    assert first in days
    assert found.files == truth.files
    assert found.troubles == ()
    assert gaps(found) == {}


def test_the_number_of_processes_makes_no_difference(truth: Truth) -> None:
    one, two = (scan_usage(readers(), truth.variables, jobs=jobs) for jobs in (1, 3))
    assert _sorted(one) == _sorted(two)
    assert (one.files, one.bytes, one.troubles) == (two.files, two.bytes, two.troubles)
    assert one.conversations == two.conversations


def test_beside_another_thread_one_process_does_it_all(truth: Truth) -> None:
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    try:
        found = scan_usage(readers("codex"), truth.variables, jobs=2)
    finally:
        done.set()
        other.join()
    assert totals(found)["output"] == truth.total(provider="codex")["output"]


def test_nothing_is_found_on_an_empty_machine(tmp_path: Path) -> None:
    found = scan(tmp_path)
    assert (found.buckets, found.files, found.troubles) == ({}, 0, ())


def test_conversations_are_named_as_an_import_names_them_with_their_folders(tmp_path: Path) -> None:
    claude(tmp_path, "s1.jsonl", [answer("m1", 3)])
    thread = uuid7(0)
    codex(tmp_path, thread, [meta(thread), *started(uuid7(5)), count(used(100))])
    opencode(tmp_path, {"ses_1": [MESSAGE]})
    found = scan(tmp_path)
    assert {name: each.cwd for name, each in found.conversations.items()} == {
        "claude:s1": "/home/dev/app",
        f"codex:{thread}": "/home/dev/api",
        "opencode:ses_1": "/home/dev/web",
    }


def test_a_forked_conversation_repeats_its_messages_and_counts_nothing_twice(tmp_path: Path) -> None:
    other = {**MESSAGE, "time": {"created": 1_788_300_000_000, "completed": 1_788_300_000_500}}
    opencode(tmp_path, {"ses_1": [MESSAGE], "ses_fork": [MESSAGE, other]})
    found = scan(tmp_path)
    assert totals(found, session="opencode:ses_1")["calls"] == 1
    assert totals(found) == {"calls": 2, "input": 20, "output": 52, "cache_read": 60, "cache_write": 0, "reasoning": 12}


@pytest.mark.parametrize(("version", "output", "found"), [("1.3.2", 20, {}), ("1.14.0", 26, {}), (None, 20, 1)])
def test_reasoning_is_added_where_the_version_leaves_it_out(
    tmp_path: Path, version: str | None, output: int, found: object
) -> None:
    tokens = {"input": 10, "output": 20, "reasoning": 6, "cache": {"read": 30, "write": 0}}
    opencode(tmp_path, {"ses_1": [{**MESSAGE, "tokens": tokens}]}, version=version or "unheard of")
    told = scan(tmp_path)
    assert totals(told)["output"] == output
    assert gaps(told) == ({} if found == {} else {"reasoning_unknown": 1})


def test_an_aborted_message_is_unknown_and_an_unfinished_one_counts_as_told(tmp_path: Path) -> None:
    nothing = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}
    aborted = {**MESSAGE, "finish": None, "tokens": nothing, "error": {"name": "MessageAbortedError"}}
    unfinished = {**MESSAGE, "time": {"created": 1_788_300_000_000}}
    opencode(tmp_path, {"ses_1": [aborted, unfinished]})
    found = scan(tmp_path)
    assert totals(found)["output"] == 26
    assert gaps(found)["interrupted"] == 1
    (one, two) = sorted(found.buckets["opencode:ses_1"], key=lambda each: each.start)
    assert (one.sums.final, two.sums.final) == (0, 1)


def test_a_reported_cost_is_kept_apart_from_what_has_none(tmp_path: Path) -> None:
    opencode(tmp_path, {"ses_1": [MESSAGE]})
    claude(tmp_path, "s1.jsonl", [answer("m1", 3)])
    sums = [bucket.sums for buckets in scan(tmp_path).buckets.values() for bucket in buckets]
    assert sorted((each.reported, each.estimated, each.unpriced) for each in sums if each.reported) == [(0.25, None, 0)]
    assert [each.unpriced for each in sums if each.reported is None] == [1]


def test_a_database_that_is_none_is_a_problem_and_stops_nothing(tmp_path: Path) -> None:
    claude(tmp_path, "s1.jsonl", [answer("m1", 3)])
    broken = tmp_path / "data" / "opencode" / "opencode.db"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    found = scan(tmp_path)
    assert totals(found)["calls"] == 1
    assert [(each.path, each.trouble.kind) for each in found.troubles] == [(str(broken), "unreadable_source")]


def test_looking_changes_nothing_in_the_programs_folders(truth: Truth) -> None:
    def state() -> list[tuple[str, int, int]]:
        files = sorted(path for path in Path(truth.folder).rglob("*") if path.is_file())
        return [(str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in files]

    before = state()
    scan_usage(readers(), truth.variables)
    assert state() == before
    assert Database(Path(truth.folder, "data", "opencode", "opencode.db")).known()


def test_variables_name_the_places(tmp_path: Path) -> None:
    claude(tmp_path, "s1.jsonl", [answer("m1", 3)])
    elsewhere = {**variables(tmp_path), "CLAUDE_CONFIG_DIR": str(tmp_path / "other")}
    assert scan_usage(readers(), elsewhere).files == 0
    assert scan_usage(readers("claude"), elsewhere, [tmp_path / "claude"]).files == 1


def _number(day: str) -> int:
    from datetime import UTC, datetime

    return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()) // 86_400


def _sorted(found: Scan) -> dict[str, list[tuple[int, str, str]]]:
    return {
        session: sorted((each.start, str(each.kind), str(each.sums)) for each in buckets)
        for session, buckets in found.buckets.items()
    }
