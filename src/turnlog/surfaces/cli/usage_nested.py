"""What a report on a wave leaves out: usage of the waves below it, which is theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from turnlog.surfaces.cli.words import one_line

if TYPE_CHECKING:
    from turnlog.api import Ledger
    from turnlog.model import Wave

NESTED: Final = 20
"""How many waves below one are looked at: a report for each."""


def nested_usage(ledger: Ledger, wave: str, asked: dict[str, Any]) -> list[str]:
    """Return lines on waves below one (its id or address) that have usage.

    ``asked`` is what else the report is narrowed to. O(waves × depth), and the cost of ``NESTED`` reports.
    """
    below = _below(ledger, wave)
    used = [each for each in below[:NESTED] if ledger.usage_report("total", wave=each.id, **asked).rows]
    lines = []
    if used:
        names = ", ".join(dict.fromkeys(one_line(each.slug) for each in used))
        lines.append(f"Nested waves with usage of their own are not counted here: {names}.")
    if len(below) > NESTED:
        lines.append(f"{len(below) - NESTED:,} more nested waves were not looked at.")
    return lines


def _below(ledger: Ledger, word: str) -> list[Wave]:
    """Return the waves that lie below what a filter takes for a wave, by address."""
    waves = ledger.waves(all=True, limit=None)
    above = {wave.id for wave in waves if word in (wave.id, wave.slug)}
    below: list[Wave] = []
    while found := [wave for wave in waves if wave.parent_id in above and wave.id not in above]:
        below += found
        above |= {wave.id for wave in found}
    return sorted(below, key=lambda wave: (wave.slug, wave.id))
