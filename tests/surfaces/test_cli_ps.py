"""``turnlog ps`` in a ledger that several homes write into."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.ledger.children import Child, child
from tests.surfaces.conftest import Turnlog
from turnlog import open_ledger
from turnlog.ledger import homes

DRIVES = """
import os, sys
import turnlog
os.environ.update(eval(sys.argv[2]))
with turnlog.open_ledger(sys.argv[1]) as ledger:
    session = ledger.create_session(id=f"session_{sys.argv[3]}", cwd="/f", title=sys.argv[3], provider="opencode")
    started = ledger.start_exec(command=["turnlog", "run", sys.argv[3]], cwd="/f")
    ledger.claim_driver(session.id, None, started.id)
    print(started.id, started.home_id, started.pid)
    sys.stdin.readline()
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/ledger.db"


@contextmanager
def driving(url: str, tmp_path: Path, name: str, **variables: str) -> Iterator[tuple[Child, str, str, str]]:
    """Let a process drive a conversation in a home of its own."""
    own = {"XDG_DATA_HOME": str(tmp_path / name), **variables}
    with child(DRIVES, url, repr(own), name) as other:
        exec_id, home, pid = other.line().split()
        yield other, exec_id, home, pid


def row(out: str, pid: str) -> dict[str, str]:
    """Return the line of a process, by the titles of the columns."""
    head, *lines = out.splitlines()
    (found,) = [line for line in lines if line.split()[0] == pid]
    starts = [head.index(title) for title in head.split()]
    ends = [*starts[1:], None]
    return {head[a:b].strip(): found[a:b].strip() for a, b in zip(starts, ends, strict=True)}


def test_one_home_is_not_named(turnlog_: Turnlog, url: str) -> None:
    with open_ledger(url) as ledger:
        mine = ledger.start_exec(command=["turnlog", "run", "x"])
        shown = turnlog_("ps")
    assert "HOME" not in shown.out
    assert str(mine.pid) in shown.out


def test_of_several_homes_each_process_names_its_own(turnlog_: Turnlog, url: str, tmp_path: Path) -> None:
    with driving(url, tmp_path, "other") as (_, _, home, pid), open_ledger(url) as ledger:
        mine = ledger.start_exec(command=["turnlog", "run", "x"])
        name = next(each.name for each in ledger.homes() if each.id == home)
        shown = turnlog_("ps")
        nodes = {each["pid"]: each["home_id"] for each in turnlog_("ps", "--json").json["nodes"]}
    own = homes.home_id() or ""
    assert nodes == {mine.pid: own, int(pid): home}
    # Both are homes on one machine, whose name does not tell them apart.
    assert row(shown.out, pid)["HOME"] == f"{name} ({home.removeprefix('home_')[:12]})"
    assert row(shown.out, str(mine.pid))["HOME"] == f"{name} ({own.removeprefix('home_')[:12]})"


def heard_of(path: Path, milliseconds_ago: int) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(
        "UPDATE agent_sessions SET driver_heartbeat_at = driver_heartbeat_at - ? WHERE driver_exec_id IS NOT NULL",
        (milliseconds_ago,),
    )
    connection.close()


def test_a_driver_on_another_machine_is_shown_while_its_lease_holds(
    turnlog_: Turnlog, url: str, tmp_path: Path
) -> None:
    with driving(url, tmp_path, "there", TURNLOG_MACHINE="there") as (other, exec_id, home, pid):
        shown = turnlog_("ps")
        assert (row(shown.out, pid)["STATE"], row(shown.out, pid)["COMMAND"]) == ("working", "turnlog run there")
        assert row(shown.out, pid)["HOME"] == os.uname().nodename
        (node,) = turnlog_("ps", "--json").json["nodes"]
        assert (node["id"], node["home_id"], node["state"]) == (exec_id, home, "working")
        for name in (pid, exec_id):
            refused = turnlog_("ps", "--stop", name)
            assert refused.code != 0
            assert "hint: " in refused.err
        assert "runs on another machine" in refused.err
        assert other.process.poll() is None
        heard_of(tmp_path / "ledger.db", 40_000)
        assert row(turnlog_("ps").out, pid)["STATE"] == "stalled"
        heard_of(tmp_path / "ledger.db", 30_000)
        assert turnlog_("ps", "--json").json["nodes"] == []


def test_an_exec_elsewhere_that_drives_nothing_is_not_said_to_run(
    turnlog_: Turnlog, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from turnlog import process

    with open_ledger(url) as ledger, monkeypatch.context() as patch:
        patch.setattr(process, "boot_id", lambda: "there:boot:pid")
        ledger.start_exec(command=["turnlog", "run", "x"])
    found: Any = json.loads(turnlog_("ps", "--json").out)
    assert found["nodes"] == []
