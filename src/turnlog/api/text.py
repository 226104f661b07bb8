"""What was said: search, transcripts, and which conversations came from which."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from turnlog.api.base import Part

if TYPE_CHECKING:
    from turnlog.harness.reading import Passage
    from turnlog.queries.search import Results
    from turnlog.queries.transcript import Entry, Kin


class Text(Part):
    """What was said in conversations that were imported, or that turnlog drove."""

    def search(
        self,
        query: str,
        *,
        provider: str | None = None,
        role: str | None = None,
        since: int | None = None,
        session: str | None = None,
        project: str | None = None,
        limit: int = 20,
        cursor: str | None = None,
        redact: bool = True,
    ) -> Results:
        """Return the passages of imported conversations that match, best first, with snippets.

        ``query``: words that must all be there, ``"phrases"``, ``begin*``, ``-without``, ``OR``. ``role`` is one of
        ``user assistant reasoning tool tool_input tool_output note``; ``since`` unix ms; ``session`` an exact id;
        ``project`` a folder or repository, or its last name. ``redact`` hides secrets in snippets. Raises InvalidError
        for a query without words, a wrong role, limit or cursor. Cost: ``turnlog.queries.search``.
        """
        from turnlog.ledger.search import Let
        from turnlog.queries import search as searching

        let = Let(
            provider=provider,
            session=session,
            project=project,
            roles=searching.role_numbers(role),
            since=since,
        )
        return searching.search(self._store, query, _passages, let=let, limit=limit, cursor=cursor, redact=redact)

    def text_kept(self, session_id: str | None = None) -> Literal["all", "some", "none"] | None:
        """Tell of how much of what was imported the text is kept, of one conversation or of all; None = no import."""
        text, imported, textless = self._store.text.kept(session_id)
        if not imported:
            return None
        return "none" if not text else "some" if textless else "all"

    def transcript(self, session_id: str) -> Iterator[Entry]:
        """Yield what was said in a conversation, in order; nothing is redacted. Streams: memory is a few MiB."""
        from turnlog.queries import transcript as transcripts

        return transcripts.transcript(self._store, session_id, _passages)

    def kin(self, session_id: str) -> tuple[Kin | None, tuple[Kin, ...]]:
        """Return the conversation that this one came from, and those that came from it (subagents, forks)."""
        from turnlog.queries import transcript as transcripts

        return transcripts.kin(self._store, session_id)


def _passages(provider: str, raw: bytes) -> tuple[Passage, ...]:
    from turnlog.intake import reader

    return reader(provider).passages(raw)
