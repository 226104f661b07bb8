"""A copy that is killed anywhere goes on when it is made again, and ends as one whole copy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ledger.children import child
from tests.ledger.moving_scenes import answers, furnish, new_ledger, own_home, tables
from turnlog import open_ledger

__all__ = ["own_home"]

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

PROGRAM = """
import os, signal, sys
import turnlog.ledger.copying as copying
from turnlog import open_ledger
first, second, left = sys.argv[1], sys.argv[2], int(sys.argv[3])
copying._PAGE = 30
def dying(done):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
with open_ledger(first) as ledger:
    ledger.copy_to(second, progress=dying)
print("whole")
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_kills_in_a_row(tmp_path: Path, kind: str) -> None:
    first, second = furnish(tmp_path), new_ledger(kind, tmp_path)
    killed = 0
    for point in (1, 3, 5, 8, 12, 16, 20, 24):
        with child(PROGRAM, first, second, str(point)) as copying:
            out, _ = copying.process.communicate(timeout=120)
            killed += copying.process.returncode == -9
        with open_ledger(first) as ledger:  # people go on meanwhile
            ledger.create_session(id=f"session_{point:02}", cwd="/f")
        if not out:
            assert copying.process.returncode == -9
    assert killed >= 5
    with child(PROGRAM, first, second, "0") as copying:
        assert copying.line() == "whole"
    assert tables(second) == tables(first)
    assert answers(second) == answers(first)
    with open_ledger(second) as ledger:
        assert ledger.verify() == []
