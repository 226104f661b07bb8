"""Conversations and their inputs (3.12, 3.17)."""

from __future__ import annotations

import uuid
from typing import Final

from turnlog import queries
from turnlog.api.base import Part, positive
from turnlog.errors import InvalidError, MissingError
from turnlog.intake import PROVIDERS
from turnlog.ledger.sessions import NewInput, NewSession
from turnlog.model import (
    Session,
    SessionSummary,
)
from turnlog.receipts import check_artifact_key, new_artifact_key

KINDS: Final = ("conversation", "flow_review", "ask")
"""``ask`` is historic (2.2)."""

SOURCES: Final = ("declared", "checkout", "inherited")
"""Where a new conversation's work may come from; ``bound`` is said by a bind alone."""


class Sessions(Part):
    """Conversations and their inputs (3.12, 3.17)."""

    def create_session(
        self,
        *,
        id: str | None = None,
        artifact_key: str | None = None,
        title: str = "Untitled",
        title_source: str = "generated",
        kind: str = "conversation",
        interactive: bool = True,
        cwd: str,
        repo: str | None = None,
        provider: str | None = None,
        model: str | None = None,
        skill: str | None = None,
        task_id: str | None = None,
        wave_id: str | None = None,
        primary_scope: str | None = None,
        caller: str | None = None,
        created_at: int | None = None,
        published: bool = True,
        exec_id: str | None = None,
        thread: str | None = None,
        work_source: str | None = None,
    ) -> Session:
        """Create a conversation with its first input; an existing id is returned unchanged (R12.1).

        ``caller`` is the artifact key of the input that asked; ``exec_id`` the admitting Exec; ``thread`` the
        provider's own id of the conversation, where it is known already; ``work_source`` where task and wave were found
        (``checkout``, ``inherited``), else they are ``declared``. Raises ConflictError when the artifact key names
        another input (R12.2).
        """
        if kind not in KINDS:
            raise InvalidError(f"session kind {kind!r} is none of {', '.join(KINDS)}")
        if work_source not in (None, *SOURCES):
            raise InvalidError(f"work source {work_source!r} is none of {', '.join(SOURCES)}")
        return self._store.sessions.create(
            NewSession(
                id=id or f"session_{uuid.uuid4().hex}",
                artifact_key=check_artifact_key(artifact_key) if artifact_key else new_artifact_key(),
                title=title,
                title_source=title_source,
                kind=kind,
                interactive=interactive,
                created_at=self._store.now() if created_at is None else created_at,
                cwd=cwd,
                repo=repo,
                provider=provider,
                model=model,
                skill=skill,
                task_id=task_id,
                wave_id=wave_id,
                work_source=(work_source or "declared") if task_id or wave_id else None,
                primary_scope=primary_scope,
                caller=caller,
                published=published,
                exec_id=exec_id,
                thread=thread,
            )
        )

    def session(self, session_id: str) -> Session | None:
        """Return a conversation by its exact id, or None."""
        return self._store.sessions.get(session_id)

    def find_session(self, word: str) -> Session:
        """Return the conversation that an id or unique prefix names; a provider's own id may stand for itself.

        So may another name that its files have for it, in full. A subagent is named behind its parent, of which the
        beginning is enough too: ``claude:5c03/a1``. Raises MissingError, InvalidError.
        """
        found = self._store.sessions.get(word)
        if found is not None:
            return found
        ids = self._ids(word) if word else []
        if len(ids) > 1:
            raise InvalidError(f"session {word} is ambiguous", hint="give more characters of the id")
        if ids and (found := self._store.sessions.get(ids[0])) is not None:
            return found
        raise MissingError(f"no session {word[:80]!r}")

    def _ids(self, word: str) -> list[str]:
        """Return the sessions that a word may name; more than one = it does not tell which."""
        by_prefix = self._store.sessions.ids_by_prefix
        ids = by_prefix(word) or by_prefix(f"session_{word}")
        if not ids and ":" not in word:
            ids = [each for provider in PROVIDERS for each in by_prefix(f"{provider}:{word}")]
        if not ids and "/" in word:
            parent, _, agent = word.rpartition("/")
            ids = [each for above in self._ids(parent) for each in by_prefix(f"{above}/{agent}")]
        return ids or self._store.imports.aliased(word)

    def latest_session(self) -> Session | None:
        """Return the conversation with the newest receipt, or None in an empty ledger."""
        found = self._store.sessions.latest()
        return None if found is None else self._store.sessions.get(found)

    def session_for_artifact(self, key: str) -> Session | None:
        """Return the conversation that owns an artifact key, or None."""
        return self._store.sessions.of_artifact(key)

    def session_for_thread(self, provider: str, thread: str) -> Session | None:
        """Return the conversation that holds a provider's thread, or None."""
        return self._store.sessions.of_thread(provider, thread)

    def session_inputs(self, session_id: str) -> list[str]:
        """Return the artifact keys of a conversation, oldest first."""
        return self._store.sessions.capture_keys(session_id)

    def sessions(
        self,
        *,
        search: str | None = None,
        provider: str | None = None,
        task: str | None = None,
        all: bool = False,
        interactive: bool | None = None,
        needs_me: bool = False,
        cursor: str | None = None,
        limit: int | None = 100,
    ) -> list[Session]:
        """Return conversations by title, then id (R17.3, R17.4): open interactive ones unless ``all``.

        ``search``: literal, case-insensitive part of the title, or part of the id. The cursor is the last id.
        """
        return self._store.sessions.page(
            search=search,
            provider=provider,
            task=task,
            all=all,
            interactive=interactive,
            needs_me=needs_me,
            cursor=cursor,
            limit=positive(limit),
        )

    def session_summary(self, session_id: str) -> SessionSummary | None:
        """Return the newest turn's state, the last driver's outcome and the flow membership (R17.1, R9.9, R17.2)."""
        session = self._store.sessions.get(session_id)
        if session is None:
            return None
        driver = self._store.drivers.get(session_id)
        exit_text = (
            self._store.sessions.observed(session_id, f"driver:{driver.generation - 1}:exit") if driver else None
        )
        exit_payload = queries.readable(exit_text)
        manifest = self._store.sessions.observed(session_id, f"{session.artifact_key}:manifest.json")
        return SessionSummary(
            session=session,
            latest_turn=self._store.sessions.latest_turn(session.captured),
            driver_outcome=exit_payload.get("outcome") if isinstance(exit_payload, dict) else None,
            membership=queries.membership(manifest),
        )

    def replace_input(
        self,
        session_id: str,
        expected_capture: int,
        *,
        artifact_key: str | None = None,
        cwd: str | None = None,
        skill: str | None = None,
        provider: str | None = None,
        model: str | None = None,
        caller: str | None = None,
        exec_id: str | None = None,
    ) -> Session:
        """Give an open conversation a new, unpublished input; None keeps a member (R12.3). Raises StaleError."""
        return self._store.sessions.replace_input(
            session_id,
            expected_capture,
            NewInput(
                artifact_key=check_artifact_key(artifact_key) if artifact_key else new_artifact_key(),
                cwd=cwd,
                skill=skill,
                provider=provider,
                model=model,
                caller=caller,
                exec_id=exec_id,
            ),
        )

    def publish_input(self, session_id: str, capture: int) -> None:
        """Publish the current input, once (R12.5). Raises StaleError."""
        self._store.sessions.publish(session_id, capture)

    def bind_session(self, session_id: str, expected_capture: int, task_id: str) -> Session:
        """Bind to a task once, for good (R12.6). Raises ConflictError, StaleError."""
        return self._store.sessions.bind(session_id, expected_capture, task_id)

    def rename_session(self, session_id: str, title: str, source: str = "human") -> Session:
        """Rename; a generated title never replaces a human one."""
        return self._store.sessions.rename(session_id, title, source)

    def complete_session(self, session_id: str, capture: int) -> None:
        """Close a conversation (R12.7). Raises StaleError."""
        self._store.sessions.complete(session_id, capture)

    def reopen_session(self, session_id: str) -> Session:
        """Open a retired conversation again, because somebody resumes it; a review stays closed."""
        return self._store.sessions.reopen(session_id)

    def ready_session(self, session_id: str, capture: int, summary: str) -> None:
        """Store the feedback of an open conversation. Raises StaleError."""
        self._store.sessions.ready(session_id, capture, summary)
