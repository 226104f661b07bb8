"""The public facade: one ``Ledger`` over store, usage and history. Synchronous; usable from several threads."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import uuid
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from turnlog import config, process, queries
from turnlog.clock import Now, now_ms
from turnlog.errors import InvalidError, MissingError
from turnlog.harness import Batch
from turnlog.intake import Taken, apply_batch
from turnlog.ledger import Store, open_store
from turnlog.ledger.events import Scope
from turnlog.ledger.rows import EngineRecord, Intent
from turnlog.ledger.sessions import NewInput, NewSession
from turnlog.model import (
    Driver,
    Event,
    Exec,
    FinalAnswer,
    InputHistory,
    Problem,
    Project,
    ProviderSession,
    Request,
    Session,
    SessionSummary,
    Task,
    Wave,
)
from turnlog.receipts import Observation, Receipt, check_artifact_key, decode, new_artifact_key


def open_ledger(url: str | None = None, *, read_only: bool = False, now: Now = now_ms) -> Ledger:
    """Open a ledger (contract §1); without URL the default one. ``now`` gives unix milliseconds (for tests).

    Creates the file (0600) and its folder (0700) unless ``read_only``, which never migrates and never writes.
    Raises InvalidError for a URL or file that is no ledger, UnavailableError when it cannot be opened.
    """
    if sys.platform == "win32":
        raise InvalidError("turnlog runs on Linux and macOS", hint="use it inside WSL")
    return Ledger(open_store(url or config.load().ledger, read_only=read_only, now=now))


class Ledger:
    """One ledger of receipts. Unknown ids: single reads give None, lists are empty, writes raise MissingError."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.url = store.url

    def close(self) -> None:
        """Close it; idempotent."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- execs

    def start_exec(
        self,
        *,
        id: str | None = None,
        trace_id: str | None = None,
        parent_id: str | None = None,
        via_agent: bool | None = None,
        caller_session_id: str | None = None,
        caller_provider_generation: int | None = None,
        command: str | list[str] | None = None,
        repo: str | None = None,
        cwd: str | None = None,
    ) -> Exec:
        """Record this process as a new Exec with its boot id, pid and start time.

        With a calling session, ``parent_id`` is the caller's origin exec: the parent becomes the exec that drives
        that session now only if generation and origin are the current engine's (1.4). The trace is the parent's.
        """
        parent = parent_id
        if caller_session_id is not None and caller_provider_generation is not None and parent_id is not None:
            parent = (
                self._store.work.agent_parent(caller_session_id, caller_provider_generation, parent_id) or parent_id
            )
        known = self._store.work.exec(parent) if parent else None
        identity = process.identify()
        new_id = id or str(uuid.uuid4())
        return self._store.work.start_exec(
            Exec(
                id=new_id,
                trace_id=trace_id or (known.trace_id if known else str(uuid.uuid4())),
                parent_id=parent,
                via_agent=(caller_session_id is not None) if via_agent is None else via_agent,
                command=command if isinstance(command, str | None) else json.dumps(command, ensure_ascii=False),
                repo=repo,
                cwd=cwd,
                started_at=self._store.now(),
                completed_at=None,
                outcome=None,
                exit_code=None,
                signal=None,
                error=None,
                boot_id=identity.boot_id if identity else None,
                pid=identity.pid if identity else None,
                pid_started_at=identity.started_at if identity else None,
                caller_session_id=caller_session_id,
                caller_provider_generation=caller_provider_generation,
            )
        )

    def end_exec(
        self,
        exec_id: str,
        outcome: str,
        *,
        exit_code: int | None = None,
        signal: str | None = None,
        error: str | None = None,
    ) -> None:
        """Record how an Exec ended: ``succeeded failed interrupted``, once."""
        self._store.work.end_exec(exec_id, outcome, exit_code=exit_code, signal=signal, error=error)

    def exec(self, exec_id: str) -> Exec | None:
        """Return an Exec by id or unique prefix. Raises InvalidError for an ambiguous prefix."""
        return self._store.work.exec(exec_id)

    def execs(
        self, *, search: str | None = None, repo: str | None = None, cursor: str | None = None, limit: int | None = 100
    ) -> list[Exec]:
        """Return Execs newest first; ``search`` is a literal part of the command; the cursor is the last id."""
        return self._store.work.execs(search=search, repo=repo, cursor=cursor, limit=_limit(limit))

    # --- work

    def create_wave(self, name: str, *, repo: str, parent_id: str | None = None, id: str | None = None) -> Wave:
        """Create a wave; its address is the slug path of its parents' names and its own."""
        return self._store.work.create_wave(name, repo, parent_id, id or str(uuid.uuid4()))

    def create_project(
        self, wave_id: str, *, external_id: str, slug: str | None = None, name: str | None = None, id: str | None = None
    ) -> Project:
        """Create a project under a wave."""
        return self._store.work.create_project(wave_id, external_id, slug, name, id or f"proj_{uuid.uuid4().hex}")

    def create_task(
        self, project_id: str, *, external_id: str, identifier: str, title: str | None = None, id: str | None = None
    ) -> Task:
        """Create a task under a project."""
        return self._store.work.create_task(
            project_id, external_id, identifier, title, id or f"task_{uuid.uuid4().hex}"
        )

    def resolve_work(self, kind: str, word: str) -> str:
        """Return the id of the one ``wave`` or ``task`` that a word names. Raises MissingError, InvalidError."""
        return self._store.work.resolve(kind, word)

    # --- sessions

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
    ) -> Session:
        """Create a conversation with its first input; an existing id is returned unchanged (R12.1).

        ``caller`` is the artifact key of the input that asked; ``exec_id`` the admitting Exec. Raises ConflictError
        when the artifact key names another input (R12.2).
        """
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
                work_source="declared" if task_id or wave_id else None,
                primary_scope=primary_scope,
                caller=caller,
                published=published,
                exec_id=exec_id,
            )
        )

    def session(self, session_id: str) -> Session | None:
        """Return a conversation by its exact id, or None."""
        return self._store.sessions.get(session_id)

    def find_session(self, word: str) -> Session:
        """Return the conversation that an id or unique prefix names. Raises MissingError, InvalidError."""
        found = self._store.sessions.get(word)
        if found is not None:
            return found
        ids = self._store.sessions.ids_by_prefix(word) or self._store.sessions.ids_by_prefix(f"session_{word}")
        if len(ids) > 1:
            raise InvalidError(f"session {word} is ambiguous", hint="give more characters of the id")
        if ids and word and (found := self._store.sessions.get(ids[0])) is not None:
            return found
        raise MissingError(f"no session {word[:80]!r}")

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
            limit=_limit(limit),
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
        exit_payload = decode(exit_text) if exit_text else None
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

    # --- driver

    def claim_driver(
        self, session_id: str, expected: Driver | None, exec_id: str, *, replace_engine: bool = False
    ) -> Driver:
        """Take the conversation if its driver tuple is still ``expected`` (R9.1 to R9.5). Raises StaleError."""
        return self._store.drivers.claim(session_id, expected, exec_id, replace_engine=replace_engine)

    def release_driver(self, session_id: str, driver: Driver) -> Driver:
        """Let go without an exit; returns the new tuple (R9.6). Raises StaleError."""
        return self._store.drivers.release(session_id, driver)

    def finish_driver(self, session_id: str, driver: Driver, outcome: str, *, engine_closed: bool = False) -> None:
        """Record the driver's exit and retire the conversation if 3.10 says so; never a completion (R9.8)."""
        self._store.drivers.finish(session_id, driver, outcome, engine_closed=engine_closed)

    def driver(self, session_id: str) -> Driver | None:
        """Return the stored driver tuple; None when never claimed."""
        return self._store.drivers.get(session_id)

    def driving(self, session_id: str, driver: Driver) -> contextlib.AbstractContextManager[None]:
        """Guard a bounded external write: only while the tuple is current, excluded against claims (R9.11, D10)."""
        return self._store.drivers.driving(session_id, driver)

    def heartbeat(self, session_id: str, driver: Driver) -> None:
        """Say that the driver lives. Raises StaleError when it no longer drives."""
        self._store.drivers.heartbeat(session_id, driver)

    def record_connection(self, session_id: str, driver: Driver, endpoint: str | None, thread: str) -> None:
        """Store the engine's endpoint and thread. Raises StaleError."""
        self._store.drivers.record_connection(session_id, driver, endpoint, thread)

    def connection(self, session_id: str) -> tuple[str, str] | None:
        """Return (endpoint, thread), only if an endpoint is stored (R11.1)."""
        engine = self._store.drivers.engine(session_id)
        if engine is None or engine.endpoint is None or engine.thread is None:
            return None
        return engine.endpoint, engine.thread

    def thread(self, session_id: str) -> str | None:
        """Return the provider's id of the conversation; it survives engines."""
        engine = self._store.drivers.engine(session_id)
        return engine.thread if engine else None

    def record_process(self, session_id: str, driver: Driver, pid: int, started_at: int) -> None:
        """Store the engine's pid and start time (unix ms). Raises StaleError."""
        self._store.drivers.record_process(session_id, driver, pid, started_at)

    def process(self, session_id: str) -> tuple[int, int] | None:
        """Return (pid, start time), only if both are stored (R11.2)."""
        engine = self._store.drivers.engine(session_id)
        if engine is None or engine.pid is None or engine.started_at is None:
            return None
        return engine.pid, engine.started_at

    def engine(self, session_id: str) -> EngineRecord | None:
        """Return all engine records of a conversation, with the driver's heartbeat."""
        return self._store.drivers.engine(session_id)

    def record_launch(self, session_id: str, driver: Driver, stage: str) -> None:
        """Record ``reserved`` or ``spawn_requested`` once per provider generation (R11.3). Raises StaleError."""
        self._store.drivers.record_launch(session_id, driver, stage)

    def launched(self, session_id: str, provider_generation: int, stage: str) -> bool:
        """Tell whether a launch stage is recorded (R9.13)."""
        return self._store.drivers.launched(session_id, provider_generation, stage)

    # --- receipts

    def record(self, session_id: str, thread: str, turn: str, kind: str, payload: Any) -> int:
        """Write one native receipt once and return its seq (R1.1 to R1.8).

        Raises ConflictError when the key holds another payload, InvalidError, MissingError.
        """
        return self._store.events.record(session_id, Receipt(thread, turn, kind, payload))

    def record_many(self, session_id: str, rows: Iterable[Receipt | tuple[str, str, str, Any]]) -> tuple[int, int]:
        """Write many native receipts in one transaction, all or none; return (new, known).

        A row is a Receipt or ``(thread, turn, kind, payload)``.
        """
        receipts = [row if isinstance(row, Receipt) else Receipt(*row) for row in rows]
        return self._store.events.record_many(session_id, receipts)

    def record_turn_origin(
        self, session_id: str, thread: str, turn: str, provider_generation: int, exec_id: str
    ) -> int:
        """Record who began a turn, together with its start; evidence, so unfenced (3.3, D3). Raises ConflictError."""
        return self._store.events.record_origin(session_id, thread, turn, provider_generation, exec_id)

    def intend_turn(
        self,
        session_id: str,
        driver: Driver,
        thread: str | None,
        request_id: str,
        payload: Any,
        *,
        turn: str | None = None,
    ) -> int:
        """Store, under the fence, that a request is about to leave (D3). Raises StaleError, ConflictError."""
        return self._store.events.intend(session_id, driver, thread, request_id, payload, turn)

    def accept_turn(self, session_id: str, driver: Driver, request_id: str, turn: str) -> None:
        """Link an intent to the turn the provider named (D3). ``driver`` is the tuple that made the intent."""
        self._store.events.accept(session_id, driver, request_id, turn)

    def refuse_turn(self, session_id: str, driver: Driver, request_id: str, reason: str) -> None:
        """Record that a request was certainly not accepted (D4)."""
        self._store.events.refuse(session_id, driver, request_id, reason)

    def outstanding_intents(self, session_id: str) -> list[Intent]:
        """Return requests of ours that have neither start nor refusal (D4), oldest first."""
        return self._store.events.outstanding(session_id)

    def open_turns(self, session_id: str) -> list[tuple[str, str]]:
        """Return (thread, turn) of our turns that began and have no completion, oldest first."""
        return self._store.events.open_turns(session_id)

    def unfinished_sessions(self) -> list[str]:
        """Return the sessions with turns or requests of ours without an end, except turns already found lost."""
        return self._store.events.unfinished_sessions()

    def own_request_ids(self, session_id: str) -> list[tuple[str, str | None]]:
        """Return every request id of ours with the turn it began, oldest first."""
        return self._store.events.own_request_ids(session_id)

    def retain(self, session_id: str, observation: Observation) -> int:
        """Keep an observation on its input (3.4). Raises MissingError, ConflictError."""
        return self._store.events.retain(session_id, observation)

    def retain_for_turn(self, session_id: str, thread: str, turn: str | None, source: str, evidence: Any) -> int:
        """Keep an observation on the input of a turn, else on the current one (D9, D19)."""
        return self._store.events.retain_for_turn(session_id, thread, turn, source, evidence)

    def take_batch(self, session: Session, thread: str, batch: Batch) -> Taken:
        """Record what a harness saw on a thread of a conversation; idempotent (promise 2, D9)."""
        return apply_batch(self._store, session, thread, batch)

    # --- requests to a running driver

    def request(self, session_id: str, kind: str, text: str | None = None, *, exec_id: str | None = None) -> str:
        """Queue ``steer``, ``interrupt`` or ``permission`` for the driving process; return the request's id."""
        return self._store.work.request(session_id, kind, text, exec_id)

    def requests(self, session_id: str, *, open_only: bool = False) -> list[Request]:
        """Return the requests of a conversation, oldest first."""
        return self._store.work.requests(session_id, open_only=open_only)

    def request_state(self, request_id: str) -> Request | None:
        """Return one request, or None."""
        return self._store.work.get_request(request_id)

    def take_requests(self, session_id: str, driver: Driver) -> list[Request]:
        """Take the queued requests as the driver; each is taken once. Raises StaleError."""
        return self._store.work.take_requests(session_id, driver)

    def settle_request(self, request_id: str, state: str, detail: str | None = None) -> None:
        """Record what became of a request: ``accepted not_steerable uncertain refused``."""
        self._store.work.settle_request(request_id, state, detail)

    def change_token(self) -> int:
        """Return a number that changes when another process has committed; cheap enough to poll."""
        return self._store.change_token()

    # --- reads

    def history(self, session_id: str, after: int = 0, limit: int | None = None) -> list[Event]:
        """Return the rows of a conversation with seq > after, in order; strict (3.5). Raises CorruptError."""
        return [row.parse() for row in self._store.events.history(session_id, after, _limit(limit))]

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
        return queries.recent_inputs(self._store, scope=Scope(wave, project, task), since=since, limit=_limit(limit))

    def usage_report(self, by: str, **filters: Any) -> queries.UsageReport:
        """Return usage rows over the ledger: ``total session model daily`` (contract §2)."""
        return queries.usage_report(self._store, by, **filters)

    # --- care

    def verify(self) -> list[Problem]:
        """Recompute what can be recomputed; return what does not agree."""
        return self._store.verify()

    def backup(self, target: str | os.PathLike[str]) -> None:
        """Copy the ledger to a new file while others write."""
        self._store.backup(Path(target))


def _limit(limit: int | None) -> int | None:
    if limit is not None and limit <= 0:
        raise InvalidError("a limit must be positive", hint="None means all")
    return limit


__all__ = ["Ledger", "open_ledger"]
