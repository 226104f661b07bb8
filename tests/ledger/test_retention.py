"""Old transcripts go, totals stay; one conversation goes, what it used stays: on both backends."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import postgres_server
from tests.intake.plain import READER, call, line
from tests.ledger import usage_scenes as scenes
from tests.ledger.children import ROOT
from tests.ledger.sqlite_setup import SqliteSetup, raw
from tests.ledger.usage_scenes import HOUR
from tests.postgres_server import PostgresSetup
from turnlog import InvalidError, Ledger, MissingError
from turnlog.archive import decompress
from turnlog.clock import now_ms, to_rfc3339
from turnlog.errors import DrivenError, UnavailableError
from turnlog.intake.importer import Imported, import_sources, reparse
from turnlog.queries.transcript import transcript
from turnlog.testing.store_suite import StoreSetup
from turnlog.testing.store_suite_base import codex, opencode
from turnlog.usage.report import UsageReport

OLD, NEW = 1_700_000_000_000, 1_760_000_000_000
BETWEEN = 1_750_000_000_000


@pytest.fixture(params=["sqlite", "postgres"])
def setup(request: pytest.FixtureRequest, tmp_path: Path) -> StoreSetup:
    found: StoreSetup = SqliteSetup(tmp_path) if request.param == "sqlite" else PostgresSetup(postgres_server.shared())
    found.clock.now = now_ms()
    return found


@pytest.fixture
def ledger(setup: StoreSetup) -> Iterator[Ledger]:
    with setup.open() as ledger:
        yield ledger


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    return folder


@pytest.fixture
def take(ledger: Ledger, folder: Path) -> Callable[[], Imported]:
    return lambda: import_sources(ledger._store, [READER], roots=[folder], variables={})


def story(session: str, at: int, *words: str, turn: str = "t1") -> bytes:
    lines = [line(session, turn, "started", at=at)]
    for number, word in enumerate(words):
        lines.append(call(session, turn, f"{session}-{turn}-{number}", at=at + number, text=f"{word} of {session}"))
    lines.append(line(session, turn, "completed", at=at + len(words), payload={"status": "completed"}))
    return b"".join(each + b"\n" for each in lines)


def said(ledger: Ledger, session: str) -> list[str | None]:
    found = transcript(ledger._store, f"claude:{session}", lambda _, raw: READER.passages(raw))
    return [entry.text for entry in found]


def hits(ledger: Ledger, word: str) -> list[str]:
    return [hit.session for hit in ledger.search(word).hits]


def reports(ledger: Ledger) -> list[UsageReport]:
    return [ledger.usage_report(by, timezone="UTC") for by in ("daily", "session", "model", "total", "blocks")]


# --- transcripts


def test_what_is_old_goes_and_every_total_stays(ledger: Ledger, folder: Path, take: Callable[[], Imported]) -> None:
    (folder / "old.jsonl").write_bytes(story("old", OLD, "apples", "pears"))
    (folder / "new.jsonl").write_bytes(story("new", NEW, "apples"))
    take()
    before = reports(ledger)
    looked = ledger.prune_transcripts(before=BETWEEN, dry_run=True)
    assert said(ledger, "old") == ["apples of old", "pears of old"]
    done = ledger.prune_transcripts(before=BETWEEN)
    assert done == looked
    assert (done.sources, done.passages, done.sessions, done.receipts) == (1, 2, 1, 0)
    assert done.bytes > 50
    assert (said(ledger, "old"), said(ledger, "new")) == ([], ["apples of new"])
    assert hits(ledger, "apples") == ["claude:new"]
    assert reports(ledger) == before
    assert ledger.pruned("claude:old").text_at is not None
    assert ledger.pruned("claude:new").text_at is None
    assert ledger.prune_transcripts(before=BETWEEN).sources == 0
    assert ledger.verify() == []


def test_an_import_or_a_new_reading_does_not_bring_it_back(
    ledger: Ledger, folder: Path, take: Callable[[], Imported]
) -> None:
    path = folder / "old.jsonl"
    path.write_bytes(story("old", OLD, "apples"))
    take()
    before = reports(ledger)
    ledger.prune_transcripts(before=BETWEEN)
    assert take().lines == 0
    assert reparse(ledger._store, [READER]).lines == 0
    assert (said(ledger, "old"), reports(ledger)) == ([], before)
    path.rename(folder / "elsewhere.jsonl")
    take()
    assert (said(ledger, "old"), reports(ledger)) == ([], before)


def test_a_conversation_that_goes_on_has_its_new_text_alone(
    ledger: Ledger, folder: Path, take: Callable[[], Imported]
) -> None:
    path = folder / "old.jsonl"
    path.write_bytes(story("old", OLD, "apples"))
    take()
    ledger.prune_transcripts(before=BETWEEN)
    with path.open("ab") as file:
        file.write(story("old", NEW, "plums", turn="t2"))
    assert take().new == 3
    assert said(ledger, "old") == ["plums of old"]
    assert hits(ledger, "apples") == []
    assert ledger.usage_report("total").totals.streams == 2
    assert ledger.prune_transcripts(before=BETWEEN).sources == 0


def test_lines_of_others_in_the_same_file_stay(ledger: Ledger, folder: Path, take: Callable[[], Imported]) -> None:
    """An OpenCode database, or a file with a copied history, tells of many conversations."""
    wide = "apples " * 400_000  # a line of several pieces, before and behind others
    (folder / "many.jsonl").write_bytes(
        story("old", OLD, wide) + story("new", NEW, wide, "pears") + story("old", OLD + 50, wide, "plums", turn="t2")
    )
    take()
    pieces = archive(ledger)
    kept = said(ledger, "new")
    done = ledger.prune_transcripts(before=BETWEEN)
    assert (done.sources, done.passages, done.sessions) == (1, 3, 1)
    assert said(ledger, "old") == []
    assert said(ledger, "new") == kept
    left = archive(ledger)
    assert 0 < len(left) < len(pieces)
    assert all(pieces[start] == data for start, data in left.items())
    assert b"plums" not in b"".join(left.values())


def archive(ledger: Ledger) -> dict[int, bytes]:
    [row] = ledger._store.imports.sources()
    return {start: decompress(data, size) for start, size, data in ledger._store.imports.pieces(row.id)}


def test_an_unfinished_turn_is_as_old_as_its_last_receipt(
    ledger: Ledger, folder: Path, take: Callable[[], Imported]
) -> None:
    lines = [line("a", "t", "started", at=OLD), call("a", "t", "m1", at=OLD), call("a", "t", "m2", at=NEW)]
    (folder / "a.jsonl").write_bytes(b"".join(each + b"\n" for each in lines))
    take()
    assert ledger.prune_transcripts(before=BETWEEN).sources == 0
    assert ledger.prune_transcripts(before=NEW + 1).sources == 1


def test_one_provider_or_one_conversation_alone(ledger: Ledger, folder: Path, take: Callable[[], Imported]) -> None:
    for name in ("a", "b"):
        (folder / f"{name}.jsonl").write_bytes(story(name, OLD, "apples"))
    take()
    assert ledger.prune_transcripts(before=BETWEEN, provider="codex").sources == 0
    assert ledger.prune_transcripts(session="claude:a").sources == 1
    assert (said(ledger, "a"), said(ledger, "b")) == ([], ["apples of b"])


def test_a_file_that_told_of_no_conversation_goes_by_its_own_time(
    ledger: Ledger, folder: Path, take: Callable[[], Imported], setup: StoreSetup
) -> None:
    (folder / "torn.jsonl").write_bytes(b"{torn\n")
    take()
    assert ledger.prune_transcripts(before=BETWEEN).sources == 0
    setup.raw_sql(f"UPDATE sources SET modified_at = {OLD}000000")
    assert ledger.prune_transcripts(before=BETWEEN).sources == 1
    assert ledger.prune_transcripts(before=BETWEEN).sources == 0


def test_what_a_process_drives_is_left_alone(ledger: Ledger, folder: Path, take: Callable[[], Imported]) -> None:
    (folder / "a.jsonl").write_bytes(story("a", OLD, "apples"))
    take()
    driver = ledger.claim_driver("claude:a", None, ledger.start_exec().id)
    done = ledger.prune_transcripts(before=BETWEEN)
    assert (done.sources, done.driven) == (0, ("claude:a",))
    with pytest.raises(DrivenError):
        ledger.prune_transcripts(session="claude:a")
    with pytest.raises(DrivenError):
        ledger.prune_session("claude:a")
    assert said(ledger, "a") == ["apples of a"]
    ledger.release_driver("claude:a", driver)
    assert ledger.prune_transcripts(session="claude:a").sources == 1


def test_what_cannot_be_pruned_is_refused(ledger: Ledger, setup: StoreSetup) -> None:
    with pytest.raises(InvalidError):
        ledger.prune_transcripts(before=now_ms() + 86_400_000)
    with pytest.raises(MissingError):
        ledger.prune_transcripts(session="nobody")
    with pytest.raises(MissingError):
        ledger.prune_session("nobody")
    assert ledger.prune_transcripts(before=BETWEEN).sources == 0


def test_a_ledger_that_others_write_is_waited_for_and_then_left_as_it_was(tmp_path: Path, folder: Path) -> None:
    setup = SqliteSetup(tmp_path)
    setup.clock.now = now_ms()
    (folder / "a.jsonl").write_bytes(story("a", OLD, "apples"))
    with setup.impatient() as ledger, raw(setup.path) as other:
        import_sources(ledger._store, [READER], roots=[folder], variables={})
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(UnavailableError):
            ledger.prune_transcripts(before=BETWEEN)
        with pytest.raises(UnavailableError):
            ledger.prune_session("claude:a")
        compacted = ledger.compact()
        assert compacted.problem is not None
        other.execute("ROLLBACK")
        assert said(ledger, "a") == ["apples of a"]
        assert ledger.prune_transcripts(before=BETWEEN).sources == 1


# --- killed


KILLED = """
import os, signal, sys
import apsw
import turnlog
url, what, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
with turnlog.open_ledger(url) as ledger:
    ledger.refresh_usage()
    writer = ledger._store._backend._writer
    writer.set_progress_handler(lambda: os.kill(os.getpid(), signal.SIGKILL), steps)
    if what == "session":
        ledger.prune_session("claude:s0")
    else:
        ledger.prune_transcripts(before=int(what))
"""


@pytest.mark.crash
@pytest.mark.parametrize("what", ["session", str(BETWEEN)])
def test_whoever_is_killed_leaves_a_ledger_that_is_right_and_goes_on(tmp_path: Path, folder: Path, what: str) -> None:
    setup = SqliteSetup(tmp_path)
    setup.clock.now = now_ms()
    for number in range(120):
        words = [f"apples {each} " * 20 for each in range(3 if number else 200)]
        (folder / f"s{number}.jsonl").write_bytes(story(f"s{number}", OLD, *words))
    with setup.open() as ledger:
        import_sources(ledger._store, [READER], roots=[folder], variables={})
        before = reports(ledger)
        whole = ledger.prune_session("claude:s0", dry_run=True)
        every = ledger.prune_transcripts(before=BETWEEN, dry_run=True)
    ends = []
    for steps in (200, 2_000, 12_000, 40_000, 90_000, 10**9):
        argv = [sys.executable, "-c", KILLED, setup.url(), what, str(steps)]
        ends.append(subprocess.run(argv, check=False, cwd=ROOT).returncode)
        with setup.open() as ledger:
            assert ledger.verify() == []
            for now, then in zip(reports(ledger), before, strict=True):
                assert plain(now) == plain(then)
            left = ledger.prune_transcripts(before=BETWEEN, dry_run=True)
            assert left.sources <= every.sources
            kept = len(ledger.history("claude:s0"))
            assert kept in {whole.receipts + 1, 2}  # all or nothing
            assert bool(said(ledger, "s0")) == bool(archived(setup, "s0"))
    assert ends[0] == -signal.SIGKILL
    assert ends[-1] == 0
    assert left.sources == (every.sources - 1 if what == "session" else 0)
    assert kept == (2 if what == "session" else whole.receipts + 1)


def archived(setup: SqliteSetup, session: str) -> int:
    [(count,)] = setup.raw_sql(
        "SELECT count(*) FROM archive a JOIN sources s ON s.id = a.source_id WHERE s.thread = :thread",
        {"thread": session},
    )
    return int(count)


# --- a whole conversation


def test_receipts_go_and_every_report_says_what_it_said(
    ledger: Ledger, folder: Path, take: Callable[[], Imported]
) -> None:
    path = folder / "a.jsonl"
    path.write_bytes(story("a", OLD, "apples", "pears") + story("a", OLD + 86_400_000, "plums", turn="t2"))
    (folder / "b.jsonl").write_bytes(story("b", NEW, "cherries"))
    take()
    before = reports(ledger)
    looked = ledger.prune_session("claude:a", dry_run=True)
    done = ledger.prune_session("claude:a")
    assert done == looked
    assert (done.receipts, done.passages, done.sources, done.sessions) == (7, 3, 1, 1)
    assert [event.kind for event in ledger.history("claude:a")] == ["captured", "observed"]
    assert_same(ledger, before, {"claude:a": 3})
    assert ledger.verify() == []
    ledger.refresh_usage(rebuild=True)
    assert_same(ledger, before, {"claude:a": 3})
    assert ledger.pruned("claude:a").receipts_at is not None
    record = ledger.input_history("claude:a")
    assert (record.usage.streams, record.usage.output_tokens) == (3, 15)
    assert [gap.kind for gap in record.usage.gap_list] == ["pruned"] * 3
    assert record.providers == ()
    assert ledger.prune_session("claude:a").receipts == 0


def assert_same(ledger: Ledger, before: list[UsageReport], gone: dict[str, int]) -> None:
    """The same numbers in every row; the gaps are one more for each stream that was pruned."""
    for now, then in zip(reports(ledger), before, strict=True):
        assert plain(now) == plain(then)
        gaps = {gap.kind: gap.count for gap in now.totals.gaps}
        assert gaps.pop("pruned") == sum(gone.values())
        assert gaps == {gap.kind: gap.count for gap in then.totals.gaps}


def plain(report: UsageReport) -> list[tuple[Any, ...]]:
    """Everything but gaps; of sums of money the last bits depend on the order of adding."""
    return [
        (
            row.key,
            row.streams,
            row.final_streams,
            row.calls,
            row.tokens,
            *map(cents, (row.cost.reported_usd, row.cost.estimated_usd)),
            row.cost.unpriced_calls,
            row.cost.low_estimates,
        )
        for row in (*report.rows, report.totals)
    ]


def cents(usd: float | None) -> float | None:
    return None if usd is None else round(usd, 12)


def test_what_tells_of_it_again_is_not_taken_again(
    ledger: Ledger, folder: Path, take: Callable[[], Imported], setup: StoreSetup
) -> None:
    path = folder / "a.jsonl"
    path.write_bytes(story("a", OLD, "apples"))
    take()
    before = reports(ledger)
    ledger.prune_session("claude:a")
    (folder / "copy.jsonl").write_bytes(path.read_bytes())
    done = take()
    assert (done.lines, done.new) == (3, 0)
    assert_same(ledger, before, {"claude:a": 1})
    assert (said(ledger, "a"), hits(ledger, "apples")) == ([], [])
    assert [row[0] for row in setup.raw_sql("SELECT count(*) FROM archive")] == [0]


def test_a_conversation_that_goes_on_is_counted_on_and_can_go_again(
    ledger: Ledger, folder: Path, take: Callable[[], Imported]
) -> None:
    path = folder / "a.jsonl"
    path.write_bytes(story("a", OLD, "apples"))
    take()
    ledger.prune_session("claude:a")
    with path.open("ab") as file:
        file.write(story("a", NEW, "plums", "pears", turn="t2"))
    take()
    total = ledger.usage_report("total").totals
    assert (total.streams, total.tokens.output) == (3, 15)
    assert said(ledger, "a") == ["plums of a", "pears of a"]
    before = reports(ledger)
    ledger.prune_session("claude:a")
    for now, then in zip(reports(ledger), before, strict=True):
        assert plain(now) == plain(then)
    assert [event.kind for event in ledger.history("claude:a")] == ["captured", "observed", "observed"]
    assert ledger.verify() == []


def test_a_copy_of_its_calls_still_counts_nowhere(ledger: Ledger, folder: Path, take: Callable[[], Imported]) -> None:
    (folder / "a.jsonl").write_bytes(story("a", OLD, "apples"))
    take()
    ledger.prune_session("claude:a")
    (folder / "fork.jsonl").write_bytes(
        line("fork", "t1", "started", at=NEW) + b"\n" + call("fork", "t1", "a-t1-0", at=NEW) + b"\n"
    )
    take()
    total = ledger.usage_report("total").totals
    assert (total.streams, total.tokens.output) == (1, 5)


def test_a_call_that_turns_out_to_be_an_earlier_conversations_counts_there(
    ledger: Ledger, folder: Path, take: Callable[[], Imported]
) -> None:
    (folder / "late.jsonl").write_bytes(story("late", NEW, "apples"))
    take()
    ledger.prune_session("claude:late")
    (folder / "first.jsonl").write_bytes(
        line("first", "t1", "started", at=OLD) + b"\n" + call("first", "t1", "late-t1-0", at=OLD) + b"\n"
    )
    take()
    ledger.refresh_usage()
    rows = {row.key: row.streams for row in ledger.usage_report("session").rows}
    assert (rows["claude:first"], rows.get("claude:late", 0)) == (1, 0)


def test_one_that_turnlog_drove_is_closed_and_holds_no_list(ledger: Ledger, setup: StoreSetup) -> None:
    session = ledger.create_session(cwd="/w", provider="opencode")
    driver = ledger.claim_driver(session.id, None, ledger.start_exec().id)
    ledger.record_connection(session.id, driver, "http://h", "ses_1")
    ledger.intend_turn(session.id, driver, "ses_1", "msg_1", {"text": "a secret prompt"}, turn="msg_1")
    ledger.record_turn_origin(session.id, "ses_1", "msg_1", driver.provider_generation, driver.exec_id or "")
    tokens = {"input": 7, "output": 5, "reasoning": 0, "cache": {"read": 0, "write": 0}}
    message = {"id": "m", "tokens": tokens, "cost": 0.25}
    ledger.record(session.id, "ses_1", "msg_1", "usage", {"provider": "opencode", "message": message})
    ledger.record(session.id, "ses_1", "msg_1", "output", {"text": "a secret answer"})
    ledger.record(session.id, "ses_1", "msg_1", "completed", {"status": "completed"})
    ledger.request(session.id, "steer", "a secret word")
    ledger.release_driver(session.id, driver)
    before = reports(ledger)
    done = ledger.prune_session(session.id)
    assert (done.receipts, done.sources) == (5, 0)
    assert_same(ledger, before, {session.id: 1})
    assert before[0].totals.cost.reported_usd == 0.25
    assert ledger.verify() == []
    closed = ledger.session(session.id)
    assert closed is not None
    assert closed.completed_at is not None
    assert "secret" not in str(ledger.history(session.id))
    assert ledger.requests(session.id) == []
    found, _ = ledger.recent_inputs(limit=10)
    assert [each.session_id for each in found] == [session.id]
    [(held,)] = setup.raw_sql("SELECT count(*) FROM captures WHERE held = 1 OR open_turns > 0")
    assert held == 0


# --- any conversation


CODEX = [codex((30, 9, 10, 2), (30, 9, 10, 2)), codex((70, 20, 30, 4), (40, 11, 20, 2))]
RECEIPTS = st.sampled_from(
    [
        scenes.call("m1", OLD),
        scenes.call("m1", OLD, out=9),
        scenes.call("m2", OLD + HOUR, model="gpt-5"),
        scenes.call("m3", OLD + 26 * HOUR, model="nobody-knows"),
        scenes.result(OLD + 2 * HOUR, fresh=1000, out=200, cost=0.5),
        {**scenes.call("m4", OLD), "call": None},
        {**scenes.call("m5", OLD), "usage": {"input_tokens": -1}},
        opencode("o1", 100, cost=0.01),
        opencode("o1", 300, cost=0.02),
        opencode("o2", 50, modelID="claude-opus-4-5"),
        {"provider": "opencode", "message": {"role": "assistant"}},
        *CODEX,
        "not an object",
    ]
)
TURNS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.booleans(),  # has a start
        st.lists(RECEIPTS, max_size=4),
        st.booleans(),  # has an end
        st.booleans(),  # a new input begins with it
    ),
    max_size=5,
)


@given(turns=TURNS, again=TURNS, price=st.booleans())
@settings(max_examples=50, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_whatever_a_conversation_holds_its_numbers_stay(turns: Any, again: Any, price: bool) -> None:
    with TemporaryDirectory() as place, SqliteSetup(Path(place)).open() as ledger:
        session = ledger.create_session(id="s", cwd="/w", provider="claude").id
        told(ledger, session, turns)
        check(ledger, session, price=price)
        told(ledger, session, [(f"later-{each[0]}", *each[1:]) for each in again])
        check(ledger, session, price=price)


def told(ledger: Ledger, session: str, turns: Any) -> None:
    for name, starts, receipts, ends, renewed in turns:
        if renewed:
            now = ledger.session(session)
            assert now is not None
            ledger.replace_input(ledger.reopen_session(session).id, now.captured)
        if starts:
            ledger.record(session, "t", name, "started", {"at": to_rfc3339(OLD)})
        for receipt in receipts:
            ledger.record(session, "t", name, "usage", receipt)
        if ends:
            ledger.record_many(session, [("t", name, "completed", {"status": "completed"})])


def check(ledger: Ledger, session: str, *, price: bool) -> None:
    if price:
        ledger.refresh_usage()
    before = reports(ledger)
    gaps = [counted(each) for each in before]
    ledger.prune_session(session)
    with ledger._store.retention.look_at(session) as tx:
        assert tx.removable() == []
    for now, then, known in zip(reports(ledger), before, gaps, strict=True):
        assert plain(now) == plain(then)
        assert counted(now) == known
    assert ledger.verify() == []


def counted(report: UsageReport) -> dict[str, int]:
    """Gaps by kind but those of pruning."""
    return {gap.kind: gap.count for gap in report.totals.gaps if gap.kind != "pruned"}
