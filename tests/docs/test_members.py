"""The members that docs/json-output.md lists, against what the commands print: all of them, and no others."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.docs.pages import members, page
from tests.surfaces import histories
from tests.surfaces.conftest import Turnlog, home, scene, turnlog_
from tests.surfaces.scenes import Scene
from turnlog import Ledger, open_ledger
from turnlog.drive import RecoverReport, TurnResult
from turnlog.drive.processes import Node, Processes, ProviderProcess
from turnlog.queries.explain import Copy
from turnlog.surfaces.cli import recover, statusline, statusline_refresh, turn, watch
from turnlog.surfaces.cli.context import Cli, Globals
from turnlog.surfaces.cli.output import SCHEMA_VERSION, plain

__all__ = ["home", "scene", "turnlog_"]

CONTRACT = page("docs/json-output.md")


def at(value: Any, place: str) -> Iterator[dict[str, Any]]:
    """The objects at a place like ``rows[].cost``."""
    if place != "(top)":
        step, _, rest = place.partition(".")
        name = step.removesuffix("[]")
        found = value.get(name) if name else value
        for item in (found or []) if step.endswith("[]") else [found]:
            if item is not None:
                yield from at(item, rest or "(top)")
        return
    assert isinstance(value, dict)
    yield value


def compare(heading: str, *values: Any) -> None:
    documented = members(CONTRACT.section(heading))
    assert documented, heading
    for place, names in documented.items():
        objects = [found for value in values for found in at(value, place)]
        assert objects, f"{heading}: nothing at {place} in the sample"
        seen = set().union(*objects)
        assert seen - set(names) == set(), f"{heading}: {place} has members that are not documented"
        assert {name for name, optional in names.items() if not optional} - seen == set(), f"{heading}: {place}"
        for name, optional in names.items():
            assert optional or all(name in found for found in objects), f"{heading}: {place} may lack {name}"


@pytest.fixture
def ledger(scene: Scene) -> Iterator[Ledger]:
    with open_ledger(scene.url) as opened:
        yield opened


def test_sessions_history_answer_inputs(scene: Scene, turnlog_: Turnlog) -> None:
    compare("sessions", turnlog_("--json", "sessions", "--all").json)
    compare("history", turnlog_("--json", "history", scene.fixed).json)
    compare("answer", turnlog_("--json", "answer", scene.fixed).json)
    compare("inputs", turnlog_("--json", "inputs", "--since", "2020-01-01").json)


def test_show(scene: Scene, turnlog_: Turnlog) -> None:
    compare("show", *(turnlog_("--json", "show", name).json for name in (scene.fixed, scene.gappy)))


@pytest.mark.parametrize("kind", ["total", "session", "model", "daily"])
def test_usage(kind: str, scene: Scene, turnlog_: Turnlog) -> None:
    # Only blocks have windows: they are in every sample.
    others = (("usage", "blocks"), ("usage", kind, "--breakdown"))
    compare("usage", *(turnlog_("--json", *argv).json for argv in (("usage", kind), *others)))


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A home with a history of Codex, and its ledger: a conversation, its subagent, and a copy of one of its calls."""
    root = tmp_path / "codex"
    histories.write(root)
    [path] = (root / "sessions").rglob(f"*{histories.MAIN}.jsonl")
    with path.open("ab") as file:
        file.write(b"{torn\n")
    monkeypatch.setenv("CODEX_HOME", str(root))
    histories.read(os.environ["TURNLOG_LEDGER"], root)
    return f"codex:{histories.MAIN}"


def test_import_and_search(imported: str, turnlog_: Turnlog) -> None:
    compare("search", turnlog_("--json", "search", "login").json)
    again = turnlog_("--json", "import", "--reparse")
    assert again.code == 3
    compare("import", again.json)


def test_watch(imported: str, turnlog_: Turnlog) -> None:
    with open_ledger(read_only=True) as ledger:
        page = next(ledger.follow(None))
    shown = [watch._plain(each) for each in page.receipts]
    compare("watch", *({"schema_version": SCHEMA_VERSION, **each} for each in shown))


def test_usage_explain(imported: str, turnlog_: Turnlog) -> None:
    value = turnlog_("--json", "usage", "explain", imported).json
    copy = {"seq": 1, "call": "c", "owner": None, "source": None, "offset": None}
    assert set(copy) == set(Copy.__struct_fields__)
    compare("usage explain", {**value, "copies": [copy]})


def test_usage_statusline(imported: str, turnlog_: Turnlog) -> None:
    place = statusline.place(None)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(statusline_refresh.compute(Cli(Globals()), None)))
    shown = turnlog_("--json", "usage", "statusline").json
    with open_ledger(read_only=True) as ledger:
        today = statusline_refresh.sums(ledger.usage_report("total").totals)
    compare("usage statusline", {**shown, "today": today})


def test_prune(imported: str, turnlog_: Turnlog) -> None:
    compare("prune", turnlog_("--json", "prune", "--session", imported, "--all", "--yes").json)


def test_export(imported: str, turnlog_: Turnlog, tmp_path: Path) -> None:
    section = CONTRACT.section("export")
    told = dict(re.findall(r"^\| `(\w+)` \| `([\w ]+)`", section, re.MULTILINE))
    for line in turnlog_("export", imported, "--format", "jsonl").lines:
        value = json.loads(line)
        names = {"schema_version", "type", "session", *told[value["type"]].split()}
        assert set(value) == names, value["type"]
    compare("export", turnlog_("--json", "export", imported, "-o", str(tmp_path / "x.md")).json)


def test_work(scene: Scene, turnlog_: Turnlog) -> None:
    lists = {}
    for argv in (
        ("wave", "create", "checkout"),
        ("wave", "create", "payments", "--parent", "checkout"),
        ("project", "create", "Cards", "--wave", "checkout"),
        ("task", "create", "ABC-1", "--project", "cards"),
        ("task", "pr", "ABC-1", "me/shop#7"),
    ):
        assert turnlog_("work", *argv).code == 0
    bound = turnlog_("--json", "bind", scene.fixed, "--task", "ABC-1").json
    compare("bind", bound)
    assert set(bound["before"]) == set(bound["during"]) == set(bound["after"])
    binds = turnlog_("--json", "usage", "--binds").json
    compare("usage --binds", binds)
    assert set(binds["binds"][0]) == set(bound) - {"schema_version", "dry_run", "already"}
    compare("work wave", turnlog_("--json", "work", "wave", "show", "checkout").json)
    compare("work project", turnlog_("--json", "work", "project", "show", "cards").json)
    compare("work task", turnlog_("--json", "work", "task", "show", "ABC-1").json)
    for kind in ("wave", "project", "task"):
        lists[kind] = turnlog_("--json", "work", kind, "list").json
        assert set(lists[kind]) == {"schema_version", f"{kind}s", "next"}
    assert set(lists["task"]["tasks"][0]) == set(members(CONTRACT.section("work task"))["task"])
    compare("activity", turnlog_("--json", "activity", "--since", "all").json)


def test_run(scene: Scene, ledger: Ledger) -> None:
    session = ledger.session(scene.fixed)
    assert session is not None
    result = TurnResult(
        session_id=session.id,
        artifact_key=session.artifact_key,
        provider="opencode",
        thread="t",
        turn="u",
        status="completed",
        answer=ledger.final_answer(session.artifact_key),
        value=None,
        usage=ledger.input_history(session.artifact_key).usage,
        exit_code=0,
    )
    compare("run, resume", turn._plain(result))


def test_steer(scene: Scene, ledger: Ledger) -> None:
    request = ledger.request_state(ledger.request(scene.gappy, "steer", "stop"))
    compare("steer, interrupt, permit", {"schema_version": SCHEMA_VERSION, "request": plain(request)})


def test_recover(scene: Scene, turnlog_: Turnlog) -> None:
    report = RecoverReport(
        session_id="s", new_receipts=1, completed=(("t", "completed"),), running=(), unknown=(), refused=()
    )
    told = recover._plain(report)
    compare("recover", {"schema_version": SCHEMA_VERSION, "sessions": [told], "failures": []})
    assert told["completed"] == [{"turn": "t", "status": "completed"}]


def test_ps(scene: Scene, turnlog_: Turnlog) -> None:
    node = Node(
        id="e",
        parent_id=None,
        kind="exec",
        label="turnlog",
        repo=None,
        worktree=None,
        wave=None,
        pid=1,
        started_at=1,
        state="working",
    )
    left = ProviderProcess(
        id="1",
        pid=1,
        ppid=1,
        process_group=1,
        started_at=1,
        kernel_state="S",
        provider=None,
        command="x",
        claim="orphaned",
    )
    sample = Processes(observed_at=1, nodes=(node,), provider_processes=(left,))
    compare("ps", {"schema_version": SCHEMA_VERSION, **plain(sample)})
    real = turnlog_("--json", "ps").json
    assert set(real) == set(members(CONTRACT.section("ps"))["(top)"])


def test_verify_doctor_backup(
    scene: Scene,
    turnlog_: Turnlog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TURNLOG_OPENCODE_BIN", sys.executable)
    compare("doctor", turnlog_("--json", "doctor").json)
    compare("ledger backup", turnlog_("--json", "ledger", "backup", str(tmp_path / "copy.db")).json)
    connection = apsw.Connection(str(tmp_path / "ledger.db"), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.execute("UPDATE session_events SET payload = '{' WHERE kind = 'output'")
    connection.close()
    compare("verify", turnlog_("--json", "verify").json)
