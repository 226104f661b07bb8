"""What a made-up history is known to have used: calls and tokens by provider, model and UTC day."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

COUNTERS = ("calls", "input", "output", "cache_read", "cache_write", "cache_write_1h", "reasoning")
"""``input`` is fresh, ``output`` includes reasoning, ``cache_write`` all cache writes."""

Key = tuple[str, str, str]
Sums = list[int]


class Row(msgspec.Struct, frozen=True):
    provider: str
    model: str
    day: str
    sums: Sums


class Book:
    """Adds calls up under (provider, model, day). Order does not matter."""

    def __init__(self) -> None:
        self.rows: dict[Key, Sums] = {}

    def call(
        self,
        provider: str,
        model: str,
        day: str,
        *,
        fresh: int,
        output: int,
        read: int,
        write: int,
        hour: int,
        reasoning: int,
    ) -> None:
        sums = self.rows.setdefault((provider, model, day), [0] * len(COUNTERS))
        for index, value in enumerate((1, fresh, output, read, write, hour, reasoning)):
            sums[index] += value

    def merge(self, other: Iterable[tuple[Key, Sums]]) -> None:
        for key, sums in other:
            mine = self.rows.setdefault(key, [0] * len(COUNTERS))
            for index, value in enumerate(sums):
                mine[index] += value


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    """The known answer. ``bytes`` and ``files`` are what lies on disk."""

    folder: str
    made_by: list[int]
    bytes: int
    files: int
    rows: list[Row]

    def total(self, *, provider: str | None = None, model: str | None = None, day: str | None = None) -> dict[str, int]:
        """Add up the rows that match."""
        sums = [0] * len(COUNTERS)
        for row in self.rows:
            if provider in {None, row.provider} and model in {None, row.model} and day in {None, row.day}:
                sums = [a + b for a, b in zip(sums, row.sums, strict=True)]
        return dict(zip(COUNTERS, sums, strict=True))

    @property
    def variables(self) -> dict[str, str]:
        """The environment that points the programs, and whoever reads their files, at the history."""
        return {
            "HOME": f"{self.folder}/home",
            "CLAUDE_CONFIG_DIR": f"{self.folder}/claude",
            "CODEX_HOME": f"{self.folder}/codex",
            "XDG_DATA_HOME": f"{self.folder}/data",
            "XDG_CONFIG_HOME": f"{self.folder}/home/.config",
        }
