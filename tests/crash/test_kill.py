"""kill -9 at any point loses nothing that was acknowledged and doubles nothing (promise 1)."""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.ledger.children import Child, child
from tests.ledger.sqlite_setup import SqliteSetup
from turnlog import Ledger

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

SEED = 20_260_930
ROUNDS = 4
KILLS_PER_ROUND = 50

WORKER = Path(__file__).with_name("worker.py").read_text(encoding="utf-8")


def check(ledger: Ledger, acknowledged: list[dict[str, Any]]) -> None:
    """Everything acknowledged is there exactly once, and the ledger agrees with itself."""
    storage = ledger._store._backend.integrity()
    assert storage == []
    assert ledger.verify() == []
    rows = ledger.history("conversation")
    seqs = [row.seq for row in rows]
    assert seqs == sorted(set(seqs))
    by_seq = {row.seq: row for row in rows}
    order = []
    for each in acknowledged:
        what = each["did"]
        if what in {"record", "observe", "intend"}:
            row = by_seq[each["seq"]]
            assert row.payload == each["payload"], each
            order.append(row.seq)
        elif what == "many":
            found = [row.payload["n"] for row in rows if row.kind == "usage" and row.turn == each["turn"]]
            assert found == each["numbers"], each
        elif what == "execs":
            assert ledger.exec(each["id"]) is not None
        elif what == "request":
            assert ledger.request_state(each["id"]) is not None
    assert order == sorted(order), "acknowledged order is not the order of the rows"
    claims = [each for each in acknowledged if each["did"] == "claim"]
    driver = ledger.driver("conversation")
    if claims:
        assert driver is not None
        assert driver.generation >= claims[-1]["generation"]
    keys = [(row.thread, row.turn, row.kind, json.dumps(row.payload, sort_keys=True)) for row in rows]
    assert len(keys) == len(set(keys))


def kill_one(forker: Child, chance: random.Random, url: str, name: str) -> list[dict[str, Any]]:
    """Let a worker acknowledge a few steps, kill it inside the next one, and return all it acknowledged."""
    forker.say(json.dumps([url, name, chance.randrange(2**31)]))
    told = [json.loads(forker.line()) for _ in range(chance.randint(2, 14))]
    assert {"did": "ended"} not in told, "the worker failed by itself"
    pid = next((each["pid"] for each in told if each["did"] == "forked"), None)
    while pid is None:
        told.append(json.loads(forker.line()))
        pid = told[-1].get("pid")
    for _ in range(chance.randrange(20_000)):
        pass  # busy for a random while: the point of the kill moves through the worker's next steps
    os.kill(pid, signal.SIGKILL)
    while told[-1]["did"] != "ended":
        told.append(json.loads(forker.line()))
    return [each for each in told if each["did"] not in {"forked", "ended"}]


@pytest.mark.parametrize("seed", range(SEED, SEED + ROUNDS))
def test_nothing_acknowledged_is_lost(tmp_path: Path, seed: int) -> None:
    """One ledger, many processes one after the other, each killed after a random number of acknowledgements."""
    chance = random.Random(seed)
    setup = SqliteSetup(tmp_path)
    acknowledged: list[dict[str, Any]] = []
    with setup.open() as ledger:
        ledger.create_session(id="conversation", cwd="/f")
    with child(WORKER) as forker:
        for kill in range(KILLS_PER_ROUND):
            new = kill_one(forker, chance, setup.url(), str(kill))
            acknowledged += new
            # Recovery happens in whoever opens it next: a reader, or the next worker.
            if kill % 3 == 0:
                with setup.open(read_only=True) as ledger:
                    rows = {row.seq for row in ledger.history("conversation")}
                    assert {each["seq"] for each in new if "seq" in each} <= rows
            if kill % 10 == 9:
                with setup.open() as ledger:
                    check(ledger, acknowledged)


@pytest.mark.parametrize("point", range(12))
def test_a_creation_that_is_killed(tmp_path: Path, point: int) -> None:
    """A process that dies while it makes the ledger leaves what the next one can go on with."""
    chance = random.Random(SEED + point)
    setup = SqliteSetup(tmp_path)
    program = (
        "import sys, turnlog.api\nprint('ready')\nsys.stdin.readline()\nprint('go')\n"
        "turnlog.api.open_ledger(sys.argv[1])\nprint('made')\nsys.stdin.readline()"
    )
    with child(program, setup.url()) as maker:
        assert maker.line() == "ready"
        maker.say()
        assert maker.line() == "go"
        for _ in range(chance.randrange(300_000)):
            pass
        maker.kill()
    with setup.open() as ledger:
        ledger.create_session(id="conversation", cwd="/f")
        assert ledger.verify() == []
