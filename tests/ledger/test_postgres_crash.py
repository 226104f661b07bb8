"""kill -9 of PostgreSQL's processes at any point loses nothing that was acknowledged, doubles nothing (promise 1)."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from tests import postgres_server
from tests.ledger.children import Child, child
from turnlog import open_ledger

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

SEED = 20_261_130
KILLS = 9

WRITER = """
import json, sys
from turnlog.api import open_ledger
from turnlog.errors import UnavailableError
url, name, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
ledger = None
number = 0
while True:
    number += 1
    many = number % 3 == 0
    rows = [("thread", f"{name}-{number}", "usage", {"n": n, "by": name}) for n in range(1 + 20 * many)]
    tried = 0
    while True:  # the same again until it is acknowledged, as an import or a pipe's reader does
        tried += 1
        try:
            if ledger is None:
                ledger = open_ledger(url)
            if many:
                ledger.record_many("conversation", rows)
            else:
                ledger.record("conversation", *rows[0])
            break
        except UnavailableError as error:
            assert error.hint
    print(json.dumps({"turn": rows[0][1], "n": len(rows), "tried": tried}))
"""


def told(writer: Child, count: int) -> list[dict[str, Any]]:
    return [json.loads(writer.line()) for _ in range(count)]


@pytest.mark.parametrize("seed", [SEED, SEED + 1])
def test_nothing_acknowledged_is_lost(seed: int) -> None:
    chance = random.Random(seed)
    with postgres_server.durable() as server:
        url = server.url(server.shared_ledger())
        with open_ledger(url) as ledger:
            ledger.create_session(id="conversation", cwd="/f")
            cursor = ledger._store.tail.end()
        acknowledged: list[dict[str, Any]] = []
        with child(WRITER, url, "one", "1") as one, child(WRITER, url, "two", "2") as two:
            for _ in range(KILLS):
                for writer in (one, two):
                    acknowledged += told(writer, chance.randint(3, 40))
                how = chance.choice(["one", "all", "quit"])
                if how == "quit":
                    server.stop()
                else:
                    server.kill(everything=how == "all")
                if how != "one":
                    server.start()
            for writer in (one, two):
                acknowledged += told(writer, 5)
                acknowledged += [json.loads(line) for line in writer.kill() if line.endswith("}")]
        assert max(each["tried"] for each in acknowledged) > 1, "no write was ever interrupted"
        with open_ledger(url) as ledger:
            rows = ledger.history("conversation")
            assert ledger.verify() == []
            found: dict[str, list[int]] = {}
            for row in rows[1:]:
                found.setdefault(str(row.turn), []).append(row.payload["n"])
            for each in acknowledged:
                assert found[each["turn"]] == list(range(each["n"])), each
            assert [row.seq for row in rows] == sorted({row.seq for row in rows})
            seen: list[int] = []
            while page := ledger._store.tail.read(cursor, 500):
                if not page[0]:
                    break
                seen += [row.seq for row in page[0]]
                cursor = page[1]
            assert sorted(seen) == [row.seq for row in rows[1:]]
