"""Moving receipts between ledgers: whole copies, and pushes into a ledger that holds those of others."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

from turnlog.api.base import Part
from turnlog.errors import CorruptError
from turnlog.ledger import Store, open_store

if TYPE_CHECKING:
    from turnlog.ledger.copying import Copying, Said
    from turnlog.ledger.homes import Home
    from turnlog.ledger.pushing import Pushed
    from turnlog.ledger.search import Place


class Moving(Part):
    """Moving receipts between ledgers."""

    def homes(self) -> list[Home]:
        """Return the homes that write into this ledger, or were pushed from, by id."""
        return self._store.copies.homes()

    def copy_to(self, url: str, *, progress: Callable[[Copying], None] | None = None) -> Copying:
        """Copy everything into the ledger at ``url``, which must be empty or an earlier copy of this one.

        Receipts keep their numbers; lists and roll-ups are made again. Both may go on being used by others. A copy that
        was cut goes on when it is made again. O(rows). Raises ConflictError for a ledger that holds anything else,
        UnavailableError when either cannot be had.
        """
        with closing(open_store(url, now=self._store.now)) as target:
            done = self._store.copies.into(target.copies, said=_said(self._store), progress=progress)
            _fold(target)
            return done

    def push_to(self, url: str, *, archive: bool = False, progress: Callable[[Pushed], None] | None = None) -> Pushed:
        """Tell the ledger at ``url``, as that of a team, what is new here since the last push.

        Processes, work, conversations and receipts go, with the home they are from; who drives a conversation now does
        not. With ``archive`` the bytes that agents left on disk and the text in them, too: whatever was said, secrets
        included. A push that was cut goes on when it is made again. What differs from what is there is never
        overwritten: it is counted in the answer. O(new receipts + rows of everything else). Raises UnavailableError
        when either ledger cannot be had.
        """
        from turnlog.intake.agree import agree
        from turnlog.ledger import homes

        with closing(open_store(url, now=self._store.now)) as target:
            done = self._store.pushes.into(
                target.pushes,
                home=homes.here(),
                archive=archive,
                same=agree,
                said=_said(self._store),
                progress=progress,
            )
            _fold(target)
            return done


def _said(store: Store) -> Said:
    """Return what reads the text of passages; what is damaged has no text."""
    from turnlog.intake import reader
    from turnlog.queries.text import Texts

    texts = Texts(store, lambda provider, raw: reader(provider).passages(raw))

    def said(place: Place) -> str | None:
        try:
            passage = texts.passage(place)
        except CorruptError:
            return None
        return None if passage is None else passage.text

    return said


def _fold(store: Store) -> None:
    """Make the sums of reports now, so that the first report need not."""
    from turnlog.queries import pricing, rollup

    rollup.refresh(store, pricing.open_book)
