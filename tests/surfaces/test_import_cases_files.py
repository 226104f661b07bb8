"""Kinds of faults of files and folders: what is damaged is located, nothing else is lost, nothing is written."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.harness.claude_reading import LATER, OTHER, SESSION, file_of, prompt, record, said, text, usage
from tests.harness.codex_rollouts import CHILD, Rollout
from tests.ledger.children import child
from tests.surfaces.conftest import Turnlog, shell
from tests.surfaces.import_history import PROBLEMS, History, kinds, listing, problems

ONE, TWO = f"claude:{SESSION}", f"claude:{OTHER}"
CALL = (10, 50, 4, 0)

APPENDING = """
import json, sys
path, line = sys.argv[1], sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
with open(path, "a") as file:
    for number in range(3000):
        whole = line.replace("m-N", f"m-{number}").replace("u-N", f"u-{number}") + "\\n"
        file.write(whole[:100])
        file.flush()
        file.write(whole[100:])
        file.flush()
print("done", flush=True)
"""

AS_NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


def two(*between: bytes) -> tuple[bytes, int]:
    """Two whole calls and what stands between them; where that begins."""
    first = file_of(prompt("p1"), said("m1", text("a")))
    last = file_of(said("m2", text("b"), stop="end_turn"))
    return first + b"".join(between) + last, len(first)


@pytest.mark.parametrize(
    ("between", "kind"),
    [
        (b"not json at all\n", "not_json"),
        (b'{"type":"assistant","message":{"id":"mX","usage":{"input_tok\n', "not_json"),
        (b"[1,2,3]\n", "not_an_object"),
        (b'"text"\n', "not_an_object"),
        (b"\0" * 4096 + b"\n", "nul_bytes"),
        (b'{"a":' * 300_000 + b"1" + b"}" * 300_000 + b"\n", "too_deep"),
        (b"\xff\xfe\xfd\n", "not_json"),
    ],
)
def test_bytes_that_cannot_be_used_are_located_and_the_lines_around_them_count(
    history: History, between: bytes, kind: str
) -> None:
    data, place = two(between)
    history.write("claude/projects/-app/x.jsonl", data)
    done = history.imported(code=PROBLEMS)
    assert problems(done) == [(kind, place)]
    assert history.calls() == 2
    assert history.gaps() == ({} if kind == "not_an_object" else {"unreadable": 1})
    assert history.imported()["problems"] == []


def test_objects_nested_deeper_than_receipts_may_be_are_located(history: History) -> None:
    deep = b'{"a":' * 252 + b"1" + b"}" * 252
    line = file_of(said("m3", text("c"), used=usage(extra=1)))
    data, place = two(line.replace(b'"extra":1', b'"extra":' + deep))
    history.write("claude/projects/-app/x.jsonl", data)
    done = history.imported(code=PROBLEMS)
    assert {(each["offset"], each["kind"]) for each in done["problems"]} == {(place, "bad_usage")}
    assert history.calls() == 2
    assert history.gaps() == {"unreadable": 1}


@pytest.mark.parametrize(
    ("change", "kinds_told"),
    [
        (lambda data: data.replace(b"\n", b"\r\n"), []),
        (lambda data: b"\xef\xbb\xbf" + data, ["byte_order_mark"]),
        (lambda data: data.replace(b'"text":"a"', b'"text":"a\xff"'), ["invalid_utf8"]),
        (lambda data: data.replace(b'"text":"a"', b'"text":"a\\ud800"'), ["lone_surrogate"]),
        (lambda data: data.replace(b'"text":"a"', b'"text":"a\x01"'), ["control_character"]),
        (lambda data: b"\0\0\0" + data, ["nul_bytes"]),
        (lambda data: data.replace(b"\n", b"\n\n\n"), []),
        (
            lambda data: data.replace(
                b'}\n{"parentUuid":null,"isSidechain":false', b'}{"parentUuid":null,"isSidechain":false', 1
            ),
            ["glued"],
        ),
        (lambda data: data[:-1], []),
    ],
)
def test_repaired_lines_count_in_full(history: History, change: Any, kinds_told: list[str]) -> None:
    history.write("claude/projects/-app/x.jsonl", change(two()[0]))
    done = history.imported(code=PROBLEMS if kinds_told else 0)
    assert kinds(done) == kinds_told
    assert history.total() == (20, 100, 8, 0)
    assert history.ends(ONE) == ["completed"]


@pytest.mark.parametrize("empty", [b"", b"\n", b"\n\n\n", b"\r\n", b"   \n"])
def test_empty_files_are_nothing(history: History, empty: bytes) -> None:
    history.write("claude/projects/-app/x.jsonl", empty)
    history.write("codex/sessions/rollout-2026-09-21T14-13-20-x.jsonl", empty)
    done = history.imported()
    assert (done["sessions"], done["problems"]) == (0, [])
    assert history.sessions() == {}


@pytest.mark.parametrize(
    ("counter", "kind"),
    [
        ({"input_tokens": -5}, "bad_counter"),
        ({"input_tokens": 1.5}, "bad_counter"),
        ({"input_tokens": "12"}, "bad_counter"),
        ({"input_tokens": True}, "bad_counter"),
    ],
)
def test_a_counter_that_is_no_count_is_left_out_and_the_rest_counts(
    history: History, counter: dict[str, Any], kind: str
) -> None:
    history.claude(prompt("p1"), said("m1", text("a"), used=usage() | counter, stop="end_turn"))
    done = history.imported(code=PROBLEMS)
    assert kinds(done) == [kind]
    assert history.total() == (None, 50, 4, 0)
    assert history.gaps()["unreadable"] == 1


def test_a_counter_larger_than_any_count_is_left_out(history: History) -> None:
    history.claude(
        prompt("p1"),
        file_of(said("m1", text("a"), stop="end_turn"))
        .replace(b'"input_tokens":10', b'"input_tokens":99999999999999999999999')
        .rstrip(b"\n"),
    )
    done = history.imported(code=PROBLEMS)
    assert "bad_counter" in kinds(done) or "integer_out_of_range" in kinds(done)
    assert history.total()[0] is None
    assert history.gaps()["unreadable"] >= 1


def test_a_counter_told_twice_counts_as_the_last_with_a_gap(history: History) -> None:
    line = file_of(said("m1", text("a"), stop="end_turn")).rstrip(b"\n")
    history.claude(prompt("p1"), line.replace(b'"input_tokens":10', b'"input_tokens":7,"input_tokens":9'))
    done = history.imported(code=PROBLEMS)
    assert kinds(done) == ["duplicate_key"]
    assert history.total() == (9, 50, 4, 0)
    assert history.gaps() == {"unreadable": 1}


def test_another_key_told_twice_is_no_problem(history: History) -> None:
    line = file_of(said("m1", text("a"), stop="end_turn")).rstrip(b"\n")
    history.claude(prompt("p1"), line.replace(b'"cwd":', b'"cwd":"/x","cwd":'))
    assert history.imported()["problems"] == []
    assert history.total() == CALL


def test_times_that_are_missing_without_zone_or_ahead_are_told_and_everything_counts(history: History) -> None:
    def timed(name: str, at: str | None) -> dict[str, Any]:
        return said(name, text(name), stop="end_turn", timestamp=at)

    history.claude(prompt("p1"), timed("m1", None), name="a")
    history.claude(
        *(each | {"sessionId": OTHER} for each in (prompt("p1"), timed("m2", "2026-02-03T04:05:06"))), name="b"
    )
    third = "5a1d0000-0000-4000-8000-000000000003"
    history.claude(
        *(each | {"sessionId": third} for each in (prompt("p1"), timed("m3", "2999-01-01T00:00:00Z"))), name="c"
    )
    done = history.imported(code=PROBLEMS)
    assert kinds(done) == ["time_in_future", "time_missing", "time_without_zone"]
    assert history.calls() == 3
    assert history.gaps() == {}
    days = history.rows("daily")
    assert days == {"2026-02-03": (20, 100, 8, 0), "2999-01-01": CALL}


# --- folders


def test_links_in_circles_end_and_a_linked_root_is_read_once(history: History, tmp_path: Path) -> None:
    place = history.claude(prompt("p1"), said("m1", text("a"), stop="end_turn"))
    folder = (history.root / place).parent
    (folder / "self").symlink_to(folder)
    (folder / "up").symlink_to(history.root)
    (folder / "nowhere.jsonl").symlink_to(tmp_path / "nothing")
    (folder / "again.jsonl").symlink_to(history.root / place)
    root = tmp_path / "linked"
    root.symlink_to(history.root)
    done = history.imported(roots=[root, history.root])
    assert (done["files"], history.calls()) == (1, 1)
    assert history.imported(roots=[root])["files"] == 0
    (folder / "loop.jsonl").symlink_to(folder / "loop.jsonl")
    assert [each["file"] for each in history.imported(code=PROBLEMS)["problems"]] == [str(folder / "loop.jsonl")]


def test_a_folder_without_permission_is_told_and_the_rest_is_read(history: History, tmp_path: Path) -> None:
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("everything is permitted here")
    history.claude(prompt("p1"), said("m1", text("a"), stop="end_turn"))
    history.claude(*(each | {"sessionId": OTHER} for each in (prompt("p1"), said("m2", text("b")))), name=OTHER)
    locked, shut = (
        history.root / "claude" / "projects" / "-locked",
        history.root / f"claude/projects/-home-dev-app/{OTHER}.jsonl",
    )
    locked.mkdir()
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o777)
    shared.chmod(0o777)
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_uid == os.geteuid() and path != Path("/") and not path.stat().st_mode & 0o001:
            path.chmod(path.stat().st_mode | 0o011)
    locked.chmod(0)
    shut.chmod(0)
    ledger = f"sqlite:///{shared}/ledger.db"
    words = ["--ledger", ledger, "import", "--root", str(history.root), "--json"]
    before = AS_NOBODY if os.geteuid() == 0 else ()
    argv = [*before, sys.executable, "-m", "turnlog", *words]
    done = run_outside(argv, shared)
    assert done[0] == PROBLEMS, done
    told = json.loads(done[1])
    assert sorted(each["kind"] for each in told["problems"]) == ["unreadable_folder", "unreadable_source"]
    assert told["receipts"]["new"] == 4
    locked.chmod(0o755)
    shut.chmod(0o644)
    again = run_outside(argv, shared)
    assert again[0] == 0, again
    code, out, _ = run_outside(
        [*before, sys.executable, "-m", "turnlog", "--ledger", ledger, "usage", "--no-import", "--json"], shared
    )
    assert code == 0
    totals = json.loads(out)["totals"]
    assert (totals["tokens"]["input"], totals["gaps"]) == (20, [])


def run_outside(argv: list[str], home: Path) -> tuple[int, str, str]:
    import subprocess

    env = {"HOME": str(home), "PATH": os.environ["PATH"], "TZ": "UTC"}
    done = subprocess.run(argv, capture_output=True, check=False, timeout=60, env=env, cwd=home)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_nothing_is_written_where_the_programs_keep_their_files(history: History) -> None:
    history.claude(prompt("p1"), said("m1", text("a"), stop="end_turn"))
    history.codex(Rollout(CHILD).started("t").context().count(1000).ended("t"))
    for path in history.root.rglob("*"):
        os.utime(path, ns=(10**18, 10**18))
    before = listing(history.root)
    history.imported()
    history.turnlog("import", "--root", str(history.root), "--reparse")
    history.turnlog("usage")
    history.turnlog("doctor")
    history.turnlog("show", ONE)
    assert listing(history.root) == before


# --- files that change


def test_a_file_that_grows_while_it_is_read_loses_nothing_and_doubles_nothing(history: History) -> None:
    place = history.claude(prompt("p1"))
    line = json.dumps(said("m-N", text("word " * 40), uuid="u-N"))
    with child(APPENDING, str(history.root / place), line) as appending:
        assert appending.line() == "ready"
        appending.say()
        seen = [history.imported()["lines"] for _ in range(6)]
        assert appending.line() == "done"
    seen.append(history.imported()["lines"])
    assert sum(seen) == 3001
    assert history.calls() == 3000
    assert history.total() == (30_000, 150_000, 12_000, 0)
    assert history.gaps() == {}
    assert history.turnlog("usage", "--no-import", "--json").json["totals"]["calls"] == 3000
    history.sound()


def test_a_half_written_line_waits_then_is_a_problem_and_then_counts(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, half = file_of(prompt("p1"), said("m1", text("a"))), file_of(said("m2", text("b")))
    path = history.write("claude/projects/-app/x.jsonl", whole + half[:50])
    assert history.imported()["problems"] == []
    assert history.calls() == 1
    # Nothing changes but the time that goes by.
    monkeypatch.setattr("turnlog.intake.pump.IDLE_MS", -1)
    assert problems(history.imported(code=PROBLEMS)) == [("unfinished_line", len(whole))]
    assert history.gaps() == {"unreadable": 1}
    assert history.imported()["problems"] == []
    with path.open("ab") as file:
        file.write(half[50:])
    assert history.imported()["problems"] == []
    assert history.calls() == 2
    assert history.gaps() == {}


def test_lines_that_end_in_carriage_returns_alone_are_read_and_told(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnlog.intake.pump.IDLE_MS", -1)
    lines = file_of(prompt("p1"), said("m1", text("a")), said("m2", text("banana")), said("m3", text("c")))
    ends = [at + 1 for at, each in enumerate(lines) if each == ord("\n")]
    lines = lines.replace(b"\n", b"\r")
    path = history.write("claude/projects/-app/x.jsonl", lines[: ends[1]])
    assert problems(history.imported(code=PROBLEMS)) == [("glued", 0)]
    assert history.calls() == 1
    with path.open("ab") as file:
        file.write(lines[ends[1] : ends[2] + 20])
    assert problems(history.imported(code=PROBLEMS)) == [("unfinished_line", ends[2])]
    assert history.calls() == 2
    with path.open("ab") as file:
        file.write(lines[ends[2] + 20 : -1])
    assert history.imported()["problems"] == []
    assert history.calls() == 3
    assert history.gaps() == {}
    hit = history.turnlog("search", "banana", "--no-import", "--json").json["hits"]
    assert [each["snippet"] for each in hit] == ["banana"]
    history.sound()


def test_a_file_whose_end_came_at_the_same_time_is_read_on(history: History) -> None:
    whole, half = file_of(prompt("p1"), said("m1", text("a"))), file_of(said("m2", text("b")))
    path = history.write("claude/projects/-app/x.jsonl", whole + half[:50])
    facts = path.stat()
    history.imported()
    with path.open("ab") as file:
        file.write(half[50:])
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert history.imported()["bytes"] == len(half)
    assert history.calls() == 2


def test_a_file_that_was_cut_and_written_anew_keeps_what_it_told(history: History) -> None:
    place = history.claude(prompt("p1"), said("m1", text("a")), said("m2", text("b"), stop="end_turn"))
    history.imported()
    history.claude(prompt("p1"), said("m1", text("a")), said("m3", text("c"), stop="end_turn", timestamp=LATER))
    assert history.imported()["receipts"]["new"] > 0
    assert history.calls() == 3
    (history.root / place).write_bytes(b"")
    history.imported()
    assert history.calls() == 3


def test_a_file_that_moved_is_the_same(history: History) -> None:
    place = history.claude(prompt("p1"), said("m1", text("a"), stop="end_turn"))
    history.imported()
    moved = history.root / "claude" / "projects" / "-elsewhere" / f"{SESSION}.jsonl"
    moved.parent.mkdir()
    (history.root / place).rename(moved)
    done = history.imported()
    assert (done["lines"], done["missing"], done["receipts"]["new"]) == (0, 0, 0)
    assert history.calls() == 1


# --- long lines


def test_one_call_between_two_lines_of_12_mb_counts(history: History) -> None:
    noise = record("progress", uuid="x", data={"type": "bash_progress", "output": "x" * (12 << 20)})
    history.claude(prompt("p1"), noise, said("m1", text("a"), stop="end_turn"), noise)
    assert history.imported()["problems"] == []
    assert history.total() == CALL
    assert history.ends(ONE) == ["completed"]


MEASURED = """
import json, pathlib, resource, sys
from turnlog.surfaces.cli.app import run
code = run(sys.argv[1:])
children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
status = pathlib.Path("/proc/self/status")
if status.exists():  # there ru_maxrss counts what the process had that started this one
    own = int(status.read_text().partition("VmHWM:")[2].split()[0])
print(json.dumps({"code": code, "own": own, "children": children}))
"""
KB_PER_MB = 1024


def measured(history: History, ledger: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """Import in a process of its own; returns what it told and the most memory it and its workers held, in KB."""
    argv = ["--ledger", f"sqlite:///{ledger}", "import", "--root", str(history.root), "--json"]
    with child(MEASURED, *argv) as importing:
        out, _ = importing.process.communicate(timeout=600)
    told, used = out.strip().splitlines()
    return json.loads(told), json.loads(used)


@pytest.mark.parametrize(("last", "most"), [(True, 260), (False, 450)], ids=["text", "answer"])
def test_a_line_of_50_mb_is_read_in_bounded_memory(history: History, tmp_path: Path, last: bool, most: int) -> None:
    """An answer of that size is a receipt, too, of which the ledger's triggers make copies of their own."""
    history.claude(
        prompt("p1"),
        said("m1", text("x" * (50 << 20)), stop=None if last else "end_turn"),
        *([said("m2", text("end"), stop="end_turn")] if last else []),
    )
    told, used = measured(history, tmp_path / "ledger.db")
    assert (told["problems"], used["code"]) == ([], 0)
    assert history.calls() == 1 + last
    assert max(used["own"], used["children"]) < most * KB_PER_MB


@pytest.mark.soak
def test_a_line_of_700_mb_is_archived_in_pieces_and_not_decoded(history: History, tmp_path: Path) -> None:
    first, last = file_of(prompt("p1"), said("m1", text("a"))), file_of(said("m2", text("b"), stop="end_turn"))
    path = history.write(f"claude/projects/-app/{SESSION}.jsonl", first)
    begin, end = b'{"type":"assistant","text":"', b'"}\n'
    size = 700 << 20
    with path.open("ab") as file:
        file.write(begin)
        for _ in range(size >> 20):
            file.write(b"x" * (1 << 20))
        file.write(end + last)
    told, used = measured(history, tmp_path / "ledger.db")
    assert [(each["kind"], each["offset"]) for each in told["problems"]] == [("line_too_long", len(first))]
    assert used["own"] + used["children"] < 500 * KB_PER_MB
    assert history.calls() == 2
    assert history.gaps() == {"unreadable": 1}


# --- programs


def test_a_script_without_a_guard_may_import_much(history: History, tmp_path: Path) -> None:
    history.claude(prompt("p1"), *(said(f"m{n}", text("x" * 100_000), uuid=f"u{n}") for n in range(180)))
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nfrom pathlib import Path\nimport turnlog\n"
        "ledger = turnlog.open_ledger(sys.argv[1])\n"
        "print(ledger.import_histories(roots=[Path(sys.argv[2])]).new)\n"
    )
    code, out, err = run_outside(
        [sys.executable, str(script), f"sqlite:///{tmp_path}/ledger.db", str(history.root)], tmp_path
    )
    assert (code, out, err) == (0, "181\n", "")


def test_a_bad_root_is_refused_and_an_empty_one_says_so(history: History, tmp_path: Path, turnlog_: Turnlog) -> None:
    refused = turnlog_("import", "--root", str(tmp_path / "none"))
    assert refused.code == 2
    assert "no folder" in refused.err
    empty = turnlog_("import", "--root", str(history.root))
    assert empty.code == 0
    assert "No histories" in empty.err


def test_usage_of_an_empty_machine_says_what_it_looked_for_and_what_to_do(turnlog_: Turnlog) -> None:
    done = turnlog_("usage")
    assert done.code == 0
    for word in ("claude", "codex", "opencode", "import --root", "run PROMPT"):
        assert word in done.err


def test_an_import_by_a_process_of_its_own_exits_3_with_counts(history: History) -> None:
    history.write("claude/projects/-app/x.jsonl", two(b"rubbish\n")[0])
    done = shell("import", "--root", str(history.root))
    assert done.code == PROBLEMS
    assert "1 source, 1 read: 4 lines" in done.out
    assert "not_json at" in done.err
