"""Real and generated histories, where they are at hand (``TURNLOG_CORPUS``): the numbers their makers know."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.harness.opencode_stored import counted, everything, lines, payloads, read
from turnlog.harness.opencode.reader import READER

CORPUS = Path(os.environ.get("TURNLOG_CORPUS", "/nonexistent")) / "opencode"
pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason="TURNLOG_CORPUS is not set")
GENERATED = CORPUS / "generated"


def test_fork_copies_with_new_ids_count_once() -> None:
    path = GENERATED / "1.18.33" / "opencode.db"
    sums = everything(read(path))
    assert (sums["input_tokens"], sums["streams"]) == (398_765, 19)


@pytest.mark.parametrize(
    ("name", "inputs", "outputs"),
    [
        # Output holds its reasoning (203, 208) in the old ones; 207 came on top of 4392 in the newest.
        ("1.1.65/storage", 210_194, 5_187),
        ("1.1.65-migrated-1.2.1/storage", 210_194, 5_187),
        ("1.2.1/opencode.db", 210_194, 5_900),
        ("1.18.33/opencode.db", 398_765, 4_599),
    ],
)
def test_reasoning_inside_and_outside_of_output(name: str, inputs: int, outputs: int) -> None:
    sums = everything(read(GENERATED / name))
    assert (sums["input_tokens"], sums["output_tokens"]) == (inputs, outputs)


def test_messages_in_folder_and_database_count_once() -> None:
    base = GENERATED / "1.1.65-migrated-1.2.1"
    tree, db = read(base / "storage"), read(base / "opencode.db")
    receipts = [
        {(each.session, each.turn, each.kind, each.payload) for each in reading.found} for reading in (tree, db)
    ]
    assert receipts[0] < receipts[1]
    assert everything(tree, db) == everything(db)
    # Two messages more in the database: a prompt and its answer.
    assert (everything(db)["streams"], everything(tree)["streams"]) == (20, 19)


def test_a_compaction_is_billed() -> None:
    reading = read(GENERATED / "1.18.33" / "opencode.db")
    messages = [payload["message"] for payload in payloads(reading, "usage")]
    summary = [each for each in messages if each.get("summary") is True]
    assert [each["tokens"]["input"] for each in summary] == [189_736]
    assert counted(reading)[summary[0]["sessionID"]].input_tokens == 382_283


def test_an_export_and_its_database_tell_the_same() -> None:
    for version in ("1.2.1", "1.18.33"):
        base = GENERATED / version
        export, db = read(base / "export-base.json"), read(base / "opencode.db")
        keys = [
            {(each.session, each.turn, each.kind, each.payload) for each in reading.found} for reading in (export, db)
        ]
        assert keys[0]
        assert keys[0] <= keys[1]


def test_every_history_is_read_with_nothing_lost_but_the_torn_object() -> None:
    sources = list(READER.discover({}, [CORPUS]))
    assert len(sources) >= 17
    troubles = {}
    for each in sources:
        found = lines(Path(each.path))
        reading = read(Path(each.path))
        if reading.troubles:
            troubles[each.path] = [(trouble.kind, trouble.session) for trouble in reading.troubles]
        assert lines(Path(each.path), found[-1][1]) == []
        assert reading.lines == len(found)
        passages = [spoken.passages for spoken in reading.spoken]
        assert [value for raw, _ in found if (value := READER.passages(raw))] == passages
    torn = str(CORPUS / "WildChildForLife+lantern" / "opencode-home" / "storage")
    assert troubles == {torn: [("bad_json", "ses_01")]}


def test_trees_of_subagents_keep_their_parents() -> None:
    reading = read(CORPUS / "fayzan123+rungraph" / "opencode" / "opencode.db")
    relations = {each.session: each.parent for each in reading.facts if each.relation == "subagent"}
    assert relations
    sessions = {each.session for each in reading.facts}
    assert set(relations.values()) <= sessions
    assert len(sessions) == 19
