"""Verbs on conversations and their inputs (semantics 3.12, 3.17)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from turnlog.clock import Now
from turnlog.errors import ConflictError, InvalidError, MissingError, StaleError
from turnlog.ledger import homes
from turnlog.ledger.backend import Backend, Tx
from turnlog.ledger.rows import session_of
from turnlog.model import Session
from turnlog.receipts import canonical, decode

TITLE_LIMIT = 80


class NewSession(msgspec.Struct, frozen=True, kw_only=True):
    """What a conversation is created with; the members are those of Session.

    ``imported_at`` is set for one that was found in files: its input is captured then (unix ms), and what folder and
    model the files tell of is no part of it.
    """

    id: str
    artifact_key: str
    title: str
    title_source: str
    kind: str
    interactive: bool
    created_at: int
    cwd: str
    repo: str | None
    provider: str | None
    model: str | None
    skill: str | None
    task_id: str | None
    wave_id: str | None
    work_source: str | None
    primary_scope: str | None
    caller: str | None
    published: bool
    exec_id: str | None
    thread: str | None = None
    imported_at: int | None = None


class NewInput(msgspec.Struct, frozen=True, kw_only=True):
    """A replacement input; None keeps what the session has."""

    artifact_key: str
    cwd: str | None
    skill: str | None
    provider: str | None
    model: str | None
    caller: str | None
    exec_id: str | None


class Sessions:
    """Conversations of one ledger."""

    def __init__(self, backend: Backend, now: Now) -> None:
        self._backend = backend
        self._now = now

    def create(self, new: NewSession) -> Session:
        """Create a conversation with its capture; an existing id is returned unchanged (R12.1, R12.2)."""
        with self._backend.write() as tx:
            return self.create_in(tx, new)

    def create_in(self, tx: Tx, new: NewSession) -> Session:
        """Create a conversation as part of a write that has begun; as ``create``."""
        at: int = new.created_at
        cwd: str | None = new.cwd
        model = new.model
        if new.imported_at is not None:
            at, cwd, model = new.imported_at, None, None
        payload = _captured_payload(new.artifact_key, new.caller, cwd, new.skill, new.provider, model)
        payload["work_source"] = new.work_source
        found = tx.one("session", id=new.id)
        if found is not None:
            self._refuse_reuse(tx, new.artifact_key, new.id, new.caller)
            return session_of(found)
        self._refuse_reuse(tx, new.artifact_key, None, None)
        wave = new.wave_id
        if new.task_id is not None:
            task = tx.one("task", id=new.task_id)
            if task is None:
                raise MissingError(f"no task {new.task_id}")
            wave = wave or task[7]
        if wave is not None and tx.one("wave", id=wave) is None:
            raise MissingError(f"no wave {wave}")
        tx.run("insert_session", **_columns(new, wave))
        capture = self._capture(tx, new.id, new.artifact_key, new.exec_id, new.task_id, wave, at, payload)
        tx.run("set_current_capture", id=new.id, capture=capture)
        return _read(tx, new.id)

    def create_all_in(self, tx: Tx, news: Sequence[NewSession]) -> list[int]:
        """Create conversations that were found in files and have no task; return their current captures.

        As ``create_in`` does one after the other, in a fixed number of questions: O(news). Raises ConflictError when an
        artifact key names the input of another session.
        """
        there = tx.each("session", [{"id": new.id} for new in news])
        named = tx.each("find_captured", [{"key": new.artifact_key} for new in news])
        for new, found, owner in zip(news, there, named, strict=True):
            if owner and owner[0][1] != (new.id if found else None):
                raise ConflictError(f"artifact key {new.artifact_key} already names an input of session {owner[0][1]}")
        fresh = [new for new, found in zip(news, there, strict=True) if not found]
        tx.each("insert_session", [_columns(new, None) for new in fresh])
        rows = []
        for new in fresh:
            payload = _captured_payload(new.artifact_key, None, None, new.skill, new.provider, None)
            told = (new.id, None, None, "captured", new.artifact_key, new.imported_at, canonical(payload))
            rows.append((*told, None, new.exec_id, None, None, None))
        made = {}
        for new, seq in zip(fresh, tx.insert_receipts(rows), strict=True):
            if seq is None:
                raise ConflictError(f"artifact key {new.artifact_key} is taken")
            made[new.id] = seq
        tx.each("set_current_capture", [{"id": name, "capture": seq} for name, seq in made.items()])
        return [
            session_of(found[0]).captured if found else made[new.id] for new, found in zip(news, there, strict=True)
        ]

    def _refuse_reuse(self, tx: Tx, key: str, owner: str | None, caller: str | None) -> None:
        found = tx.one("find_captured", key=key)
        if found is None:
            return
        if found[1] != owner:
            raise ConflictError(f"artifact key {key} already names an input of session {found[1]}")
        if caller is not None and decode(found[2]).get("caller_key") != caller:
            raise ConflictError(f"artifact key {key} was recorded with another caller")

    def _capture(
        self,
        tx: Tx,
        session_id: str,
        key: str,
        exec_id: str | None,
        task: str | None,
        wave: str | None,
        at: int,
        payload: dict[str, Any],
    ) -> int:
        row = tx.one(
            "insert_captured",
            session=session_id,
            key=key,
            exec=exec_id,
            task=task,
            wave=wave,
            at=at,
            payload=canonical(payload),
        )
        if row is None:
            raise ConflictError(f"artifact key {key} is taken")
        return int(row[0])

    def get(self, session_id: str) -> Session | None:
        """Return a conversation, or None."""
        with self._backend.read() as tx:
            row = tx.one("session", id=session_id)
            return None if row is None else session_of(row)

    def of_artifact(self, key: str) -> Session | None:
        """Return the conversation that owns an artifact key, or None."""
        with self._backend.read() as tx:
            capture = tx.one("capture_by_key", key=key)
            return None if capture is None else _read(tx, capture[1])

    def of_thread(self, provider: str, thread: str) -> Session | None:
        """Return the conversation that holds a provider's thread, or None."""
        with self._backend.read() as tx:
            row = tx.one("session_of_thread", provider=provider, thread=thread)
            return None if row is None else _read(tx, row[0])

    def ids_by_prefix(self, prefix: str) -> list[str]:
        """Return up to two ids that begin with ``prefix``, of conversations that are not below another one there."""
        with self._backend.read() as tx:
            return [row[0] for row in tx.all("session_ids_by_prefix", prefix=prefix)]

    def latest(self) -> str | None:
        """Return the id of the conversation with the newest receipt."""
        with self._backend.read() as tx:
            row = tx.one("latest_session")
            return None if row is None else str(row[0])

    def page(
        self,
        *,
        search: str | None,
        provider: str | None,
        task: str | None,
        all: bool,
        interactive: bool | None,
        needs_me: bool,
        cursor: str | None,
        limit: int | None,
    ) -> list[Session]:
        """Return conversations by title, then id, after the cursor's (R17.3, R17.4)."""
        with self._backend.read() as tx:
            after = tx.one("session", id=cursor) if cursor is not None else None
            if cursor is not None and after is None:
                raise InvalidError(f"unknown cursor {cursor!r}", hint="use the `next` of an earlier page")
            shown = interactive if interactive is not None or all else True
            rows = tx.all(
                "session_page" if all else "open_session_page",
                search=search or None,
                provider=provider,
                task=task,
                interactive=None if shown is None else int(shown),
                needs_me=int(needs_me),
                after_id=cursor or "",
                after_title=after[1] if after else "",
                limit=-1 if limit is None else limit,
            )
            return [session_of(row) for row in rows]

    def replace_input(self, session_id: str, expected: int, new: NewInput) -> Session:
        """Give an open conversation a new input (R12.3). Raises StaleError, MissingError."""
        with self._backend.write() as tx:
            old = _read(tx, session_id)
            if tx.one("find_captured", key=new.artifact_key) is not None:
                raise StaleError(f"artifact key {new.artifact_key} is not new")
            if old.captured != expected or old.completed_at is not None:
                raise StaleError(f"the current input of session {session_id} is not {expected}, or it is closed")
            cwd, skill = new.cwd or old.cwd, new.skill or old.skill
            provider, model = new.provider or old.provider, new.model or old.model
            payload = _captured_payload(new.artifact_key, new.caller, cwd, skill, provider, model)
            payload["work_source"] = old.work_source
            capture = self._capture(
                tx, session_id, new.artifact_key, new.exec_id, old.task_id, old.wave_id, self._now(), payload
            )
            if not tx.run(
                "replace_input",
                id=session_id,
                expected=expected,
                capture=capture,
                cwd=cwd,
                skill=skill,
                provider=provider,
                model=model,
            ):
                raise StaleError(f"the current input of session {session_id} is not {expected}")
            return _read(tx, session_id)

    def publish(self, session_id: str, capture: int) -> None:
        """Publish the current input once (R12.5)."""
        self._conditional("publish_input", session_id, f"input {capture} cannot be published", capture=capture)

    def bind(self, session_id: str, capture: int, task_id: str) -> Session:
        """Bind to a task once, for good (R12.6)."""
        with self._backend.write() as tx:
            old = _read(tx, session_id)
            task = tx.one("task", id=task_id)
            if task is None:
                raise MissingError(f"no task {task_id}")
            if old.task_id == task_id:
                return old
            if old.task_id is not None:
                raise ConflictError(f"session {session_id} is bound to task {old.task_id} already")
            if old.wave_id not in (None, task[7]):
                raise ConflictError(f"task {task_id} belongs to another wave than session {session_id}")
            if not tx.run("bind_session", id=session_id, capture=capture, task=task_id, wave=task[7], at=self._now()):
                raise StaleError(f"the current input of session {session_id} is not {capture}")
            return _read(tx, session_id)

    def rename(self, session_id: str, title: str, source: str) -> Session:
        """Rename; a generated title never replaces a human one (2.2, R17.5)."""
        if source not in ("human", "generated"):
            raise InvalidError(f"title source {source!r} is neither human nor generated")
        with self._backend.write() as tx:
            _read(tx, session_id)
            tx.run("rename_session", id=session_id, title=clean_title(title), source=source)
            return _read(tx, session_id)

    def complete(self, session_id: str, capture: int) -> None:
        """Close the conversation (R12.7)."""
        self._conditional(
            "complete_session", session_id, f"session {session_id} cannot be completed", capture=capture, at=self._now()
        )

    def ready(self, session_id: str, capture: int, summary: str) -> None:
        """Store the feedback of an open conversation."""
        if not summary.strip():
            raise InvalidError("a ready summary must not be blank")
        self._conditional(
            "ready_session", session_id, f"session {session_id} cannot be made ready", capture=capture, summary=summary
        )

    def reopen(self, session_id: str) -> Session:
        """Open a retired conversation again, because somebody resumes it."""
        with self._backend.write() as tx:
            _read(tx, session_id)
            tx.run("reopen_session", id=session_id)
            return _read(tx, session_id)

    def _conditional(self, query: str, session_id: str, refusal: str, **params: Any) -> None:
        with self._backend.write() as tx:
            _read(tx, session_id)
            if not tx.run(query, id=session_id, **params):
                raise StaleError(refusal)

    def latest_turn(self, capture: int) -> str | None:
        """Return the status of the newest turn of a capture; ``running`` without completion; None without turns."""
        with self._backend.read() as tx:
            row = tx.one("latest_turn", capture=capture)
        if row is None:
            return None
        return "running" if row[0] is None else row[1]

    def observed(self, session_id: str, key: str) -> str | None:
        """Return the payload text of one observation, or None."""
        with self._backend.read() as tx:
            row = tx.one("observed_payload", session=session_id, key=key)
            return None if row is None else str(row[0])

    def capture_keys(self, session_id: str) -> list[str]:
        """Return the artifact keys of a conversation, oldest first."""
        return self._keys("capture_keys_of_session", session=session_id)

    def artifact_keys_by_prefix(self, prefix: str) -> list[str]:
        """Return up to two artifact keys that begin with ``prefix`` (``run_`` optional, R15.11)."""
        return self._keys("artifact_keys_by_prefix", prefix=prefix)

    def _keys(self, query: str, **params: Any) -> list[str]:
        with self._backend.read() as tx:
            return [row[0] for row in tx.all(query, **params)]


def clean_title(title: str) -> str:
    """Return a title of one trimmed line of at most 80 characters (R17.5). Raises InvalidError when it is empty."""
    line = " ".join(title.split())[:TITLE_LIMIT].strip()
    if not line:
        raise InvalidError("a title must not be empty")
    return line


def _read(tx: Tx, session_id: str) -> Session:
    row = tx.one("session", id=session_id)
    if row is None:
        raise MissingError(f"no session {session_id}")
    return session_of(row)


def _columns(new: NewSession, wave: str | None) -> dict[str, Any]:
    return {
        "id": new.id,
        "title": clean_title(new.title),
        "title_source": new.title_source,
        "kind": new.kind,
        "interactive": int(new.interactive),
        "created_at": new.created_at,
        "published": int(new.published),
        "cwd": new.cwd,
        "repo": new.repo,
        "skill": new.skill,
        "provider": new.provider,
        "model": new.model,
        "task": new.task_id,
        "wave": wave,
        "work_source": new.work_source,
        "primary_scope": new.primary_scope,
        "thread": new.thread,
        "home": homes.home_id(),
    }


def _captured_payload(
    key: str, caller: str | None, cwd: str | None, skill: str | None, provider: str | None, model: str | None
) -> dict[str, Any]:
    return {
        "artifact_key": key,
        "caller_key": caller,
        "cwd": cwd,
        "skill": skill,
        "provider": provider,
        "model": model,
        "flow_session_id": None,
        "node": None,
        "iterations": None,
        "work_source": None,
    }
