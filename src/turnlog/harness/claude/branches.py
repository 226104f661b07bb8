"""Branches of one conversation's tree of records, to notice two programs that write one session at once.

A prompt below a record that already has a follower begins a branch: a rewind, or a second program. After a rewind the
older branch is silent; if its model speaks again, two programs write.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

KNOWN: Final = 64
"""Records that are remembered: the branches of two writers are never far apart."""


class Branches(msgspec.Struct):
    """``records`` maps the newest records to their branch, ``followed`` those that have a follower."""

    records: dict[str, int] = {}
    followed: dict[str, None] = {}
    here: int = 0
    made: int = 0
    speaks: int = 0
    told: bool = False

    def passed(self, line: Mapping[str, Any]) -> None:
        """Take a record that may be a parent. Constant time."""
        name, parent = line.get("uuid"), line.get("parentUuid")
        if isinstance(parent, str):
            self.here = self.records.get(parent, self.here)
        if isinstance(name, str):
            self.records[name] = self.here
            if len(self.records) > KNOWN:
                del self.records[next(iter(self.records))]

    def prompted(self, line: Mapping[str, Any]) -> None:
        """Take a prompt."""
        parent, name = line.get("parentUuid"), line.get("uuid")
        if isinstance(name, str) and name in self.records:
            return  # written twice
        self.passed(line)
        if not isinstance(parent, str):
            return
        if parent in self.followed:
            self.made += 1
            self.here = self.made
            if isinstance(name, str):
                self.records[name] = self.here
        self._follow(parent)

    def spoke(self, line: Mapping[str, Any]) -> bool:
        """Take a line of the model; True, once, if an older branch goes on behind a newer one."""
        self.passed(line)
        if isinstance(parent := line.get("parentUuid"), str):
            self._follow(parent)
        older = self.here < self.speaks
        self.speaks = self.here
        if not older or self.told:
            return False
        self.told = True
        return True

    def knows(self, name: object) -> bool:
        """Tell whether a record is one of the newest."""
        return isinstance(name, str) and name in self.records

    def _follow(self, parent: str) -> None:
        self.followed[parent] = None
        if len(self.followed) > KNOWN:
            del self.followed[next(iter(self.followed))]
