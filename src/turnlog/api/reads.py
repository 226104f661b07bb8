"""Answers (3.5 to 3.8, 3.13 to 3.16) and care."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnlog import queries
from turnlog.api.base import Part, positive
from turnlog.ledger.events import Scope
from turnlog.model import (
    Event,
    FinalAnswer,
    InputHistory,
    Problem,
    ProviderSession,
)
from turnlog.queries import pricing, rollup

if TYPE_CHECKING:
    from turnlog.queries.explain import Explained
    from turnlog.queries.reporting import Seen
    from turnlog.usage.report import UsageReport


class Reads(Part):
    """Answers (3.5 to 3.8, 3.13 to 3.16) and care."""

    def history(self, session_id: str, after: int = 0, limit: int | None = None) -> list[Event]:
        """Return the rows of a conversation with seq > after, in order; strict (3.5). Raises CorruptError."""
        return [row.parse() for row in self._store.events.history(session_id, after, positive(limit))]

    def input_summary(
        self, artifact_key: str, *, wave: str | None = None, project: str | None = None, task: str | None = None
    ) -> list[Event]:
        """Return the rows of one input without conversation text (R5.4 to R5.9); strict."""
        return [row.parse() for row in self._store.events.input_summary(artifact_key, Scope(wave, project, task))]

    def input_events(self, artifact_key: str) -> list[dict[str, Any]]:
        """Return the recorder's evidence objects in ordinal order, text included (R5.7); strict."""
        return self._store.events.evidence(artifact_key)

    def input_event_times(self, artifact_key: str) -> list[int]:
        """Return the recorder's times in ordinal order (3.6), unix milliseconds; events without a time are skipped."""
        return queries.event_times(self._store, artifact_key)

    def orphaned_history(
        self,
        session_id: str,
        thread: str | None,
        turn: str | None,
        *,
        wave: str | None = None,
        project: str | None = None,
        task: str | None = None,
    ) -> list[Event]:
        """Return the native rows of exactly one turn whose origin has no input (R5.10); strict."""
        rows = self._store.events.orphaned_history(session_id, thread, turn, Scope(wave, project, task))
        return [row.parse() for row in rows]

    def provider_session(self, artifact_key: str) -> ProviderSession | None:
        """Return the provider's id of the conversation as the input's evidence tells it (3.7, D8)."""
        return queries.provider_session(self._store, artifact_key)

    def final_answer(self, artifact_key: str) -> FinalAnswer | None:
        """Return the final answer of an input, naming the turn that gave it (3.13, D7, D8)."""
        return queries.final_answer(self._store, artifact_key)

    def resolve_input(self, selector: str) -> str:
        """Return the artifact key that a session id, key or unique prefix names. Raises MissingError, InvalidError."""
        return queries.resolve_input(self._store, selector)

    def input_history(self, selector: str) -> InputHistory:
        """Return the history record of one input: session id, artifact key or unique prefix (3.16, R15.11); strict."""
        return queries.input_history(self._store, selector)

    def inputs(
        self,
        *,
        wave: str | None = None,
        project: str | None = None,
        task: str | None = None,
        caller: str | None = None,
        since: int = 0,
        include_finished: bool = True,
    ) -> list[InputHistory]:
        """Return all inputs and orphan turns of a window (3.15); with ``caller`` exactly those it launched, strict."""
        return queries.inputs(
            self._store,
            scope=Scope(wave, project, task),
            caller=caller,
            since=since,
            include_finished=include_finished,
        )

    def recent_inputs(
        self,
        *,
        wave: str | None = None,
        project: str | None = None,
        task: str | None = None,
        since: int = 0,
        limit: int | None = 50,
    ) -> tuple[list[InputHistory], bool]:
        """Return every unfinished and the newest finished inputs, and whether some were left out (R15.6)."""
        return queries.recent_inputs(self._store, scope=Scope(wave, project, task), since=since, limit=positive(limit))

    def usage_report(
        self,
        by: str,
        *,
        since: str | int | None = None,
        until: str | int | None = None,
        timezone: str | None = None,
        provider: str | None = None,
        session: str | None = None,
        wave: str | None = None,
        project: str | None = None,
        task: str | None = None,
        breakdown: bool = False,
        prices: Path | None = None,
        seen: Seen | None = None,
    ) -> UsageReport:
        """Return usage by ``daily weekly monthly blocks session model project task total`` (contract §2).

        A stream belongs to the time at which its call or turn began. ``since`` and ``until`` are days (inclusive,
        ``YYYY-MM-DD`` in the zone), RFC 3339 or unix milliseconds (``until`` is then the first instant left out).
        ``project`` is a repository's path or name, or a planning project. ``prices`` is a file of prices for this
        report alone; ``seen`` is what ``look_at_histories`` counted of what is not imported yet. Brings the roll-ups up
        to date first; where the ledger cannot be written now, what is out of date is folded in memory. Raises
        InvalidError. O(quarters of an hour with usage), with ``prices`` O(streams).
        """
        from turnlog.queries import usage

        return usage.usage_report(
            self._store,
            by,
            since=since,
            until=until,
            timezone=timezone,
            provider=provider,
            session=session,
            wave=wave,
            project=project,
            task=task,
            breakdown=breakdown,
            prices=prices,
            seen=seen,
        )

    def places(self) -> list[str]:
        """Return the repositories, else folders, that conversations belong to, each once, in order: O(sessions)."""
        with self._store.rollups.read() as tx:
            return sorted({each.project for each in tx.facts() if each.project})

    def usage_explain(self, selector: str) -> Explained:
        """Return what stands behind the usage of a session or input: streams, receipts, bytes; O(its receipts).

        Raises MissingError, InvalidError for a beginning that names several inputs.
        """
        from turnlog.queries import explain

        return explain.explain(self._store, selector)

    def usage_current(self) -> bool:
        """Tell whether the roll-ups of usage are up to date: O(receipts since they were)."""
        return rollup.current(self._store, pricing.open_book)

    def refresh_usage(self, *, rebuild: bool = False) -> int:
        """Bring the roll-ups of usage up to date, or make all of them again; return how many sessions were folded.

        O(receipts of the sessions that changed), in short transactions. Raises UnavailableError where the ledger cannot
        be written.
        """
        return rollup.refresh(self._store, pricing.open_book, rebuild=rebuild).sessions

    # --- care

    def verify(self) -> list[Problem]:
        """Recompute what can be recomputed; return what does not agree."""
        found = self._store.verify()
        # Of a damaged file nothing more can be told.
        return found if any(each.kind == "storage" for each in found) else [*found, *rollup.verify(self._store)]

    def backup(self, target: str | os.PathLike[str]) -> None:
        """Copy the ledger to a new file while others write."""
        self._store.backup(Path(target))
