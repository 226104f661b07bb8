"""Several processes at one ledger at the same time."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.ledger.children import Child, child
from tests.ledger.sqlite_setup import SqliteSetup

pytestmark = [pytest.mark.crash, pytest.mark.timeout(120)]

EACH = 150

WRITER = """
import json, sys
from turnlog.api import open_ledger
url, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
ledger = open_ledger(url)
print("ready")
sys.stdin.readline()
for number in range(count):
    own = ledger.record("conversation", "thread", name, "usage", {"by": name, "n": number})
    shared = ledger.record("conversation", "thread", "shared", "usage", {"n": number})
    done = ledger.record("conversation", "thread", f"turn-{number}", "completed", {"status": "completed"})
    print(json.dumps([own, shared, done]))
print("end")
sys.stdin.readline()
"""

TAIL = """
import json, sys
from turnlog.api import open_ledger
ledger = open_ledger(sys.argv[1], read_only=True)
print("ready")
wanted = int(sys.argv[2])
last, seen = 0, []
while len(seen) < wanted:
    for event in ledger.history("conversation", after=last):
        seen.append(event.seq)
        last = event.seq
print(json.dumps(seen))
"""

CLAIM = """
import json, sys
from turnlog.api import open_ledger
from turnlog.errors import StaleError
ledger = open_ledger(sys.argv[1])
exec_id = ledger.start_exec(id=sys.argv[2]).id
print("ready")
for line in sys.stdin:
    expected = ledger.driver("conversation")
    if int(line) != (expected.generation if expected else 0):
        print(json.dumps(None))  # somebody was faster than our look: as good as losing
        continue
    try:
        won = ledger.claim_driver("conversation", expected, exec_id, replace_engine=True)
        print(json.dumps([won.generation, won.provider_generation, won.exec_id]))
    except StaleError:
        print(json.dumps(None))
"""


@pytest.fixture
def setup(tmp_path: Path) -> SqliteSetup:
    setup = SqliteSetup(tmp_path)
    with setup.open() as ledger:
        ledger.create_session(id="conversation", cwd="/f")
    return setup


def ready(children: list[Child]) -> None:
    for each in children:
        assert each.line() == "ready"


def test_two_writers_and_a_reader_that_tails(setup: SqliteSetup) -> None:
    """One row for each key; each writer's order holds; the reader skips nothing."""
    rows = 1 + 2 * EACH + 2 * EACH  # input, each writer's own, shared usage and completions once
    with ExitStack() as stack:
        tail = stack.enter_context(child(TAIL, setup.url(), str(rows)))
        writers = [stack.enter_context(child(WRITER, setup.url(), name, str(EACH))) for name in ("one", "two")]
        ready([tail, *writers])
        for writer in writers:
            writer.say()
        told: list[list[list[int]]] = []
        for writer in writers:
            lines = []
            while (line := writer.line()) != "end":
                lines.append(json.loads(line))
            told.append(lines)
        seen: list[int] = json.loads(tail.line())
    with setup.open() as ledger:
        history = ledger.history("conversation")
        assert ledger.verify() == []
    assert seen == [event.seq for event in history]
    assert len(history) == rows
    for lines in told:
        own = [line[0] for line in lines]
        assert own == sorted(own)
    assert [line[1:] for line in told[0]] == [line[1:] for line in told[1]], "both were told the same seq"
    keys = {(event.turn, event.kind, json.dumps(event.payload)) for event in history}
    assert len(keys) == rows


def test_each_generation_is_won_by_exactly_one(setup: SqliteSetup) -> None:
    """R9.1 across processes."""
    rounds = 30
    with ExitStack() as stack:
        claimers = [stack.enter_context(child(CLAIM, setup.url(), f"exec{n}")) for n in range(4)]
        ready(claimers)
        winners: list[Any] = []
        for generation in range(rounds):
            for each in claimers:
                each.say(str(generation))
            answers = [json.loads(each.line()) for each in claimers]
            won = [answer for answer in answers if answer is not None]
            assert len(won) == 1, answers
            winners += won
    assert [winner[0] for winner in winners] == list(range(1, rounds + 1))
    assert [winner[1] for winner in winners] == list(range(1, rounds + 1))
    with setup.open() as ledger:
        driver = ledger.driver("conversation")
        assert driver is not None
        assert [driver.generation, driver.provider_generation, driver.exec_id] == winners[-1]
        assert ledger.verify() == []


STEER = """
import json, sys
from turnlog.api import open_ledger
ledger = open_ledger(sys.argv[1])
driver = ledger.driver("conversation")
print("ready")
for line in sys.stdin:
    print(json.dumps([each.id for each in ledger.take_requests("conversation", driver)]))
"""


def test_a_request_is_taken_by_one_process(setup: SqliteSetup) -> None:
    """D20: two processes that both believe to drive (the same tuple) never both get one."""
    with setup.open() as ledger:
        ledger.claim_driver("conversation", None, ledger.start_exec().id)
        with ExitStack() as stack:
            takers = [stack.enter_context(child(STEER, setup.url())) for _ in range(2)]
            ready(takers)
            for _ in range(20):
                made = {ledger.request("conversation", "steer", str(n)) for n in range(3)}
                for each in takers:
                    each.say()
                taken = [request for each in takers for request in json.loads(each.line())]
                assert sorted(taken) == sorted(made)
