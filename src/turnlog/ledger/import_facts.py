"""What sources tell of a conversation comes to the same in any order: the rules, without a database.

Where two texts are equally good the smaller one by bytes is taken, which is what comparing them here does.
"""

from __future__ import annotations

from typing import Final

import msgspec

_RANKS: Final = {"subagent": 3, "fork": 2}


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What one source tells of a conversation; None = it does not say. Instants are unix ms.

    ``first`` is the earliest instant that the source tells of it, ``at`` when it says that it began.
    """

    at: int | None = None
    first: int | None = None
    cwd: str | None = None
    root: str | None = None
    remote: str | None = None
    model: str | None = None
    version: str | None = None
    title: str | None = None
    title_rank: int = 0
    title_at: int | None = None
    parent: str | None = None
    parent_turn: str | None = None
    relation: str | None = None


class Known(msgspec.Struct, array_like=True):
    """What all of them have told so far."""

    began_at: int | None = None
    cwd: str | None = None
    root: str | None = None
    remote: str | None = None
    version: str | None = None
    model: str | None = None
    title: str | None = None
    title_rank: int = 0
    title_at: int | None = None
    parent_id: str | None = None
    relation: str | None = None
    parent_turn: str | None = None

    def learn(self, told: Told) -> None:
        """Add what one source tells."""
        self._learn_title(told)
        self._learn_parent(told)
        self._learn_place(told)

    def _learn_title(self, told: Told) -> None:
        """Take a better title: of a higher rank; the first prompt of the source that began first; the last given."""
        if told.title is None:
            return
        at = told.title_at if told.title_rank else told.first
        if self.title is None or told.title_rank > self.title_rank:
            better = True
        elif told.title_rank < self.title_rank:
            better = False
        elif told.title_rank:
            better = (at or 0) >= (self.title_at or 0)
        else:
            better = _before(at, self.title_at) or (at is not None and at == self.title_at and told.title < self.title)
        if better:
            self.title, self.title_rank, self.title_at = told.title, told.title_rank, at

    def _learn_parent(self, told: Told) -> None:
        """Take where it comes from. A subagent is one, whatever else a source takes it for."""
        parent, turn = told.parent, told.parent_turn
        if told.relation is not None and (
            self.relation is None
            or _weight(told.relation, parent) > _weight(self.relation, self.parent_id)
            or (told.relation == self.relation and _smaller(parent, self.parent_id))
        ):
            self.parent_id, self.relation, self.parent_turn = parent, told.relation, turn
        if (
            turn is not None
            and (parent is None or parent == self.parent_id)
            and (self.parent_turn is None or (parent is not None and turn < self.parent_turn))
        ):
            self.parent_turn = turn

    def _learn_place(self, told: Told) -> None:
        """Take what was not known.

        Of sources that differ the one that has the earlier beginning (``first``) is right, of those that began at once
        the smaller text.
        """
        earlier = _before(told.first, self.began_at)
        begun = told.at is not None and told.at == self.began_at
        seen = told.first is not None and told.first == self.began_at
        self.cwd = _of_two(self.cwd, told.cwd, earlier=earlier, equal=begun)
        self.root = _of_two(self.root, told.root, earlier=earlier, equal=seen)
        self.remote = _of_two(self.remote, told.remote, earlier=earlier, equal=seen)
        self.version = _of_two(self.version, told.version, earlier=earlier, equal=begun)
        self.model = self.model if told.model is None else told.model
        if told.at is not None and (self.began_at is None or told.at < self.began_at):
            self.began_at = told.at


def _before(at: int | None, other: int | None) -> bool:
    return at is not None and (other is None or at < other)


def _smaller(text: str | None, other: str | None) -> bool:
    return text is not None and other is not None and text < other


def _weight(relation: str, parent: str | None) -> tuple[int, bool]:
    return _RANKS.get(relation, 1), parent is not None


def _of_two(known: str | None, told: str | None, *, earlier: bool, equal: bool) -> str | None:
    if told is None:
        return known
    return told if known is None or earlier or (equal and told < known) else known
