"""kill -9 at any point loses nothing that was acknowledged and doubles nothing (promise 1)."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.ledger.children import child
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


@pytest.mark.parametrize("seed", range(SEED, SEED + ROUNDS))
def test_nothing_acknowledged_is_lost(tmp_path: Path, seed: int) -> None:
    """One ledger, many processes one after the other, each killed after a random number of acknowledgements.

    The kill falls anywhere in what the worker does next: it is sent while the worker goes on.
    """
    chance = random.Random(seed)
    setup = SqliteSetup(tmp_path)
    acknowledged: list[dict[str, Any]] = []
    with setup.open() as ledger:
        ledger.create_session(id="conversation", cwd="/f")
    for kill in range(KILLS_PER_ROUND):
        with child(WORKER, setup.url(), str(kill), str(chance.randrange(2**31))) as worker:
            for _ in range(chance.randint(1, 12)):
                acknowledged.append(json.loads(worker.line()))
            # A busy wait of a random length moves the point of the kill inside the next operation.
            for _ in range(chance.randrange(20_000)):
                pass
            acknowledged += [json.loads(line) for line in worker.kill() if line.endswith("}")]
        if kill % 10 == 9:
            with setup.open() as ledger:
                check(ledger, acknowledged)
        else:
            # Recovery happens in whoever opens it next; also a reader that only reads.
            with setup.open(read_only=kill % 2 == 0) as ledger:
                rows = {row.seq for row in ledger.history("conversation")}
                assert {each["seq"] for each in acknowledged if "seq" in each} <= rows
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
