"""Arithmetic of Codex's running totals: five counters, of which cached and written input are parts of the input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

NAMES: Final = (
    "input_tokens",
    "cached_input_tokens",
    "cache_write_input_tokens",
    "output_tokens",
    "reasoning_output_tokens",
)
"""``total_tokens`` is left out: it also holds context estimates and whole context windows that nobody spent."""

WHOLE: Final = ("input_tokens", "output_tokens")
"""The counters of which the others are parts."""

_COMPARED: Final = ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens")
_MOST: Final = 2**63 - 1

Totals = dict[str, int]


def counters(value: Any, bad: list[str] | None = None) -> Totals | None:
    """Return the counters of a usage object; None when it is no object or has none.

    What is no integer from 0 to 2^63 - 1 is left out, and its name added to ``bad``.
    """
    if not isinstance(value, dict):
        return None
    found: Totals = {}
    for name in NAMES:
        count = value.get(name)
        if count is None:
            continue
        if type(count) is int and 0 <= count <= _MOST:
            found[name] = count
        elif bad is not None:
            bad.append(name)
    return found or None


def same(one: Mapping[str, int], other: Mapping[str, int]) -> bool:
    """Tell whether two totals are equal in the four counters that every version writes."""
    for name in _COMPARED:  # noqa: SIM110 - called for every running total; a generator takes three times as long
        if one.get(name, 0) != other.get(name, 0):
            return False
    return True


def fallen(total: Mapping[str, int], before: Mapping[str, int]) -> list[str]:
    """Return the counters that are smaller than they were."""
    return [name for name, count in total.items() if count < before.get(name, 0)]


def less(total: Mapping[str, int], before: Mapping[str, int]) -> Totals:
    """Return what was added, counter by counter; a counter that fell adds nothing."""
    return {name: max(0, count - before.get(name, 0)) for name, count in total.items()}


def together(several: list[Totals]) -> Totals:
    """Return the sum of several."""
    return {name: sum(each.get(name, 0) for each in several) for name in NAMES}


def spelled(total: Mapping[str, int]) -> str:
    """Return the compared counters as text: what a call is told apart by where it has no name."""
    get = total.get
    return (
        f"{get('input_tokens', 0)},{get('cached_input_tokens', 0)},"
        f"{get('output_tokens', 0)},{get('reasoning_output_tokens', 0)}"
    )


def difference(total: Totals, before: Totals, last: Totals | None) -> tuple[Totals, list[dict[str, Any]]]:
    """Return what a step of the running totals added, and what is wrong with it.

    A fall begins a new epoch, counted from zero, unless ``last``, the newest response alone, tells that the rest grew
    as it should. Growth above ``last`` is counted: responses lie between that nobody told of.
    """
    usage: Totals = {}
    gaps: list[dict[str, Any]] = []
    down = False
    for name, count in total.items():
        step = count - before.get(name, 0)
        if step < 0:
            down, step = True, 0
        usage[name] = step
    if not down and last == usage:
        return usage, gaps  # nearly always
    fell = fallen(total, before)
    told = last if last is not None and any(last.values()) else None
    if fell and not (told is not None and all(usage.get(name, 0) == told.get(name, 0) for name in WHOLE)):
        if told is not None and not same(told, total):
            gaps = [_gap("counter_reset", name, before.get(name, 0), total[name]) for name in fell[:1]]
        return dict(total), gaps
    if fell:
        return usage, [_gap("decrease", name, before.get(name, 0), total[name]) for name in fell]
    if told is not None:
        over = [name for name in WHOLE if usage.get(name, 0) > told.get(name, usage.get(name, 0))]
        gaps = [_gap("witness_mismatch", name, told[name], usage[name]) for name in over]
    return usage, gaps


def _gap(kind: str, name: str, before: int, after: int) -> dict[str, Any]:
    return {"kind": kind, "counter": name, "before": before, "after": after}
