"""A small readable table of measurements against their budgets."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec


class Row(msgspec.Struct, frozen=True):
    """One measurement; ``passed`` None when there is no budget."""

    work: str
    measured: str
    peer: str = ""
    ratio: str = ""
    budget: str = ""
    passed: bool | None = None


def show(title: str, rows: list[Row]) -> None:
    """Print the rows under a title."""
    head = ("work", "measured", "peer", "ratio", "budget", "")
    cells = [head] + [
        (row.work, row.measured, row.peer, row.ratio, row.budget, {True: "PASS", False: "MISS", None: ""}[row.passed])
        for row in rows
    ]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    print(f"\n{title}")
    for row in cells:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def best(work: Callable[[], object], times: int = 7) -> float:
    """Return the seconds of the fastest of several runs: what the machine can do when nobody disturbs it."""
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        work()
        found.append(time.perf_counter() - begin)
    return min(found)


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms"
