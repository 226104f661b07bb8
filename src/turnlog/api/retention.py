"""What is kept for how long: pruning transcripts, removing a conversation, giving space back."""

from __future__ import annotations

from collections.abc import Callable

from turnlog.api.base import Part
from turnlog.queries import retention
from turnlog.queries.retention import Compacted, Progress, Pruned, PrunedMark


class Retention(Part):
    """What is kept for how long: pruning transcripts, removing a conversation, giving space back."""

    def prune_transcripts(
        self,
        *,
        before: int | None = None,
        provider: str | None = None,
        session: str | None = None,
        dry_run: bool = False,
        progress: Callable[[Progress], None] | None = None,
    ) -> Pruned:
        """Drop archived bytes and text of conversations last heard of before an instant (unix ms; None: any).

        No receipt is touched, so no total changes; an import of the same files does not bring the text back. Each
        source is one transaction: an interrupted prune goes on when it is asked for again. Raises DrivenError when a
        process drives ``session`` (others are left alone), InvalidError, MissingError. O(turns and passages of them).
        """
        return retention.prune_transcripts(
            self._store, before=before, provider=provider, session=session, dry_run=dry_run, progress=progress
        )

    def prune_session(
        self, session_id: str, *, dry_run: bool = False, progress: Callable[[Progress], None] | None = None
    ) -> Pruned:
        """Drop everything of one conversation but its inputs and what it used; a conversation of ours is closed.

        An observation ``prune`` on each input keeps the streams that its receipts were reduced to: every total stays,
        with a gap ``pruned``. Raises DrivenError, MissingError. O(receipts of the conversation).
        """
        return retention.prune_session(self._store, session_id, dry_run=dry_run, progress=progress)

    def compact(self, *, before: int | None = None) -> Compacted:
        """Give the space of what was dropped back to the system; not while a conversation is driven.

        ``before`` is what the ledger took before something was dropped (default: now), in bytes. On SQLite the file is
        copied, during which nobody else can write; PostgreSQL does it by itself.
        """
        return retention.compact(self._store, before=self._store.size() if before is None else before)

    def size(self) -> int:
        """Return how many bytes the ledger takes on disk."""
        return self._store.size()

    def pruned(self, session_id: str) -> PrunedMark:
        """Return when text, and when receipts, of a conversation were pruned last."""
        return retention.marks(self._store, session_id)

    def text_pruned(self) -> int | None:
        """Return when text of any conversation was pruned last (unix ms)."""
        return self._store.retention.text_pruned()
