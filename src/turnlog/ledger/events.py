"""Verbs on receipts: append, intend, observe, read (semantics 3.1 to 3.6, D3, D4, D9)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from turnlog.clock import Now, now_ms
from turnlog.errors import ConflictError, InvalidError, MissingError, StaleError
from turnlog.ledger.backend import Backend, Row, Tx
from turnlog.ledger.rows import AnswerTurn, Intent, RawEvent, parse_payload
from turnlog.model import NATIVE_KINDS, Driver, EventKind
from turnlog.receipts import Observation, Receipt, canonical, receipt_key


class Scope(msgspec.Struct, frozen=True):
    """A filter by work: each a word that names a wave, project or task (R5.9)."""

    wave: str | None = None
    project: str | None = None
    task: str | None = None


class Events:
    """Receipts of one ledger."""

    def __init__(self, backend: Backend, now: Now) -> None:
        self._backend = backend
        self._now = now

    # --- append

    def record(self, session_id: str, receipt: Receipt) -> int:
        """Write one native receipt once; return its seq (3.1). Raises ConflictError, InvalidError, MissingError."""
        prepared = _prepare(session_id, receipt)
        with self._backend.write() as tx:
            return self._append(tx, prepared)[0]

    def record_many(self, session_id: str, receipts: Iterable[Receipt]) -> tuple[int, int]:
        """Write many receipts in one transaction, all or none; return how many were new and how many known."""
        prepared = [_prepare(session_id, receipt) for receipt in receipts]
        new = 0
        with self._backend.write() as tx:
            # A start takes its attribution from what is there when it comes; what lies between starts goes at once.
            for started, items in itertools.groupby(prepared, lambda item: item.kind == EventKind.STARTED):
                if started:
                    new += sum(self._append(tx, item)[1] for item in items)
                else:
                    new += self._append_all(tx, list(items))
        return new, len(prepared) - new

    def _append(self, tx: Tx, item: _Prepared) -> tuple[int, bool]:
        if item.kind == EventKind.STARTED:
            seq = self._insert_started(tx, item, None, None)
        else:
            seq = tx.insert_native(_native(item, self._now()))
        if seq is not None:
            return seq, True
        return _known(tx, item), False

    def _append_all(self, tx: Tx, items: list[_Prepared]) -> int:
        seqs = tx.insert_natives([_native(item, self._now()) for item in items])
        for item, seq in zip(items, seqs, strict=True):
            if seq is None and item.kind != EventKind.USAGE:  # the key of usage is the digest of its text
                _known(tx, item)
        return len(seqs) - seqs.count(None)

    def _insert_started(self, tx: Tx, item: _Prepared, exec_id: str | None, generation: int | None) -> int | None:
        found = tx.one("start_attribution", session=item.session, thread=item.thread, turn=item.turn)
        if found is None:
            raise MissingError(f"no session {item.session}")
        _, _, task, wave, capture, intent_exec, intent_generation = found
        row = tx.one(
            "insert_started",
            session=item.session,
            thread=item.thread,
            turn=item.turn,
            generation=intent_generation if generation is None else generation,
            exec=exec_id or intent_exec,
            task=task,
            wave=wave,
            at=self._now(),
            payload=item.text,
            capture=capture,
        )
        return None if row is None else int(row[0])

    def record_origin(self, session_id: str, thread: str, turn: str, generation: int, exec_id: str) -> int:
        """Record who began a turn, with its start, in one transaction (3.3, D3). ConflictError if another did."""
        item = _prepare(session_id, Receipt(thread, turn, EventKind.STARTED, {}))
        with self._backend.write() as tx:
            if tx.one("exec", id=exec_id) is None:
                raise MissingError(f"no exec {exec_id}", hint="record it first with start_exec()")
            found = tx.one("start_of_turn", session=session_id, thread=thread, turn=turn)
            if found is None:
                intent = tx.one("start_attribution", session=session_id, thread=thread, turn=turn)
                if intent is not None and intent[1] is not None and (intent[5], intent[6]) != (exec_id, generation):
                    raise _other_origin(session_id, turn)
                seq = self._insert_started(tx, item, exec_id, generation)
                if seq is not None:
                    return seq
                found = tx.one("start_of_turn", session=session_id, thread=thread, turn=turn)
            if found is None or not tx.run("fill_origin", seq=found[0], exec=exec_id, generation=generation):
                raise _other_origin(session_id, turn)
            return int(found[0])

    # --- intents

    def intend(
        self, session_id: str, driver: Driver, thread: str | None, request_id: str, payload: Any, turn: str | None
    ) -> int:
        """Store that a request is about to leave (D3). Fenced. Raises StaleError, ConflictError."""
        text = canonical(payload)
        if not request_id:
            raise InvalidError("an intent needs a request id")
        with self._backend.write() as tx:
            fence(tx, session_id, driver, self._now)
            row = tx.one(
                "insert_requested",
                session=session_id,
                thread=thread,
                turn=turn,
                request=request_id,
                provider_generation=driver.provider_generation,
                exec=driver.exec_id,
                generation=driver.generation,
                at=self._now(),
                payload=text,
            )
            if row is not None:
                return int(row[0])
            seq, old_thread, old_turn, exec_id, provider_generation, generation, old_text, _ = _intent(
                tx, session_id, request_id
            )
            same_driver = (exec_id, provider_generation, generation) == (
                driver.exec_id,
                driver.provider_generation,
                driver.generation,
            )
            if not same_driver or old_text != text or turn not in (None, old_turn) or thread not in (None, old_thread):
                raise ConflictError(f"request {request_id} of session {session_id} is already recorded differently")
            return int(seq)

    def accept(self, session_id: str, driver: Driver, request_id: str, turn: str) -> None:
        """Link an intent to the turn the provider named; fill a start that came first (D3)."""
        with self._backend.write() as tx:
            row = _intent(tx, session_id, request_id)
            _check_author(row, driver, session_id, request_id)
            seq, thread, known, exec_id, generation = row[:5]
            if known == turn:
                return
            if known is not None:
                raise ConflictError(f"request {request_id} of session {session_id} already began turn {known}")
            if thread is None and (stored := tx.one("driver", id=session_id)) is not None:
                thread = stored[5]
            tx.run("link_requested", seq=seq, turn=turn, thread=thread)
            for start, _, _ in tx.all("starts_of_turn_id", session=session_id, thread=thread, turn=turn):
                if not tx.run("fill_origin", seq=start, exec=exec_id, generation=generation):
                    raise _other_origin(session_id, turn)

    def refuse(self, session_id: str, driver: Driver, request_id: str, reason: str) -> None:
        """Record that a request was certainly not accepted: observation ``refused:<request id>`` (D4)."""
        with self._backend.write() as tx:
            row = _intent(tx, session_id, request_id)
            try:
                # Evidence of who sent it, or of who now looks after the conversation.
                fence(tx, session_id, driver, self._now)
            except StaleError:
                _check_author(row, driver, session_id, request_id)
            observation = Observation(row[7], f"refused:{request_id}", self._now(), {"reason": reason})
            self._retain(tx, session_id, observation)

    def outstanding(self, session_id: str) -> list[Intent]:
        """Return the intents without start, refusal or absorption, oldest first (D4)."""
        with self._backend.read() as tx:
            return [Intent(*row) for row in tx.all("outstanding_intents", session=session_id)]

    def own_request_ids(self, session_id: str, thread: str | None) -> list[tuple[str, str | None]]:
        """Return our request ids on a thread, or on one not known then, with the turn each began; oldest first."""
        with self._backend.read() as tx:
            return [(row[0], row[1]) for row in tx.all("own_request_ids", session=session_id, thread=thread)]

    def open_turns(self, session_id: str) -> list[tuple[str, str]]:
        """Return (thread, turn) of our turns that began and have no completion, oldest first."""
        with self._backend.read() as tx:
            return [(row[0], row[1]) for row in tx.all("open_turns", session=session_id)]

    def unfinished_sessions(self) -> list[str]:
        """Return the sessions with turns or requests of ours without an end, except turns already found lost."""
        with self._backend.read() as tx:
            return [row[0] for row in tx.all("unfinished_sessions")]

    def open_questions(self, session_id: str) -> list[tuple[str, str]]:
        """Return (question id, payload text) of permission questions of the current input without an answer."""
        with self._backend.read() as tx:
            rows = tx.all("open_questions", session=session_id)
        return [(row[0].removeprefix("permission:").removesuffix(":asked"), row[1]) for row in rows]

    # --- observations

    def retain(self, session_id: str, observation: Observation) -> int:
        """Keep an observation on its capture (3.4). Raises MissingError, ConflictError."""
        with self._backend.write() as tx:
            return self._retain(tx, session_id, observation)

    def artifact_of_turn(self, session_id: str, thread: str, turn: str | None) -> str | None:
        """Return the artifact key of the input a turn belongs to, else of the current one."""
        with self._backend.read() as tx:
            row = tx.one("capture_of_turn", session=session_id, thread=thread, turn=turn or "")
            return None if row is None else row[0]

    def retain_for_turn(self, session_id: str, thread: str, turn: str | None, source: str, evidence: Any) -> int:
        """Keep an observation on the capture of a turn, else on the current one (D9, D19)."""
        with self._backend.write() as tx:
            row = tx.one("capture_of_turn", session=session_id, thread=thread, turn=turn or "")
            if row is None:
                raise MissingError(f"no session {session_id}")
            return self._retain(tx, session_id, Observation(row[0], source, self._now(), evidence))

    def _retain(self, tx: Tx, session_id: str, observation: Observation) -> int:
        key, source = observation.artifact_key, observation.source
        if not source:
            raise InvalidError("an observation needs a source")
        capture = tx.one("capture_by_key", key=key)
        if capture is None:
            raise MissingError(f"no input {key}")
        if capture[1] != session_id and tx.one("session", id=session_id) is None:
            raise MissingError(f"no session {session_id}")
        if capture[1] != session_id:
            raise ConflictError(f"input {key} belongs to session {capture[1]}, not to {session_id}")
        text = canonical({"input_id": key, "source": source, "evidence": observation.payload})
        row = tx.one(
            "insert_observed",
            session=session_id,
            key=f"{key}:{source}",
            exec=None,
            task=observation.task_id,
            wave=observation.wave_id,
            at=observation.observed_at,
            payload=text,
            capture=capture[0],
        )
        if row is not None:
            return int(row[0])
        found = tx.one(
            "find_receipt", session=session_id, thread=None, turn=None, kind="observed", key=f"{key}:{source}"
        )
        if found is None or found[1] != text:
            raise ConflictError(f"input {key} already holds another observation of source {source}")
        return int(found[0])

    # --- reads

    def history(self, session_id: str, after: int, limit: int | None) -> list[RawEvent]:
        """Return the rows of a session with seq > after, in order (3.5). Raises MissingError."""
        with self._backend.read() as tx:
            rows = tx.all("history", session=session_id, after=after, limit=-1 if limit is None else limit)
            if not rows and tx.one("session", id=session_id) is None:
                raise MissingError(f"no session {session_id}")
            return [RawEvent(*row) for row in rows]

    def input_summary(self, key: str, scope: Scope) -> list[RawEvent]:
        """Return the rows of one capture without its text (R5.4 to R5.9): O(rows)."""
        with self._backend.read() as tx:
            rows = tx.all("input_summary", key=key, wave=scope.wave, project=scope.project, task=scope.task)
        told: dict[int, Any] = {
            row[0]: (*row[1:4], EventKind.USAGE.value, *row[5:9]) for row in rows if row[4] == EventKind.STARTED
        }
        return [
            RawEvent(*row[:11]) if row[11] is None else RawEvent(row[0], *told[row[11]], *row[9:11]) for row in rows
        ]

    def orphaned_history(self, session_id: str, thread: str | None, turn: str | None, scope: Scope) -> list[RawEvent]:
        """Return the native rows of one turn whose origin has no capture (R5.10)."""
        with self._backend.read() as tx:
            rows = tx.all(
                "orphaned_history",
                session=session_id,
                thread=thread,
                turn=turn,
                wave=scope.wave,
                project=scope.project,
                task=scope.task,
            )
            return [RawEvent(*row) for row in rows]

    def input_evidence(self, key: str) -> list[tuple[int, bytes]]:
        """Return (seq, payload text) of the recorder's events in ordinal order (R5.7)."""
        with self._backend.read() as tx:
            return [(row[0], row[1]) for row in tx.all("input_evidence", key=key)]

    def turns_before(self, starts: Sequence[tuple[str, str, str, int]]) -> list[str | None]:
        """Return, for each start, the turn before it on the same thread, if it completed before it (D5); else None.

        A start is (session, thread, turn, seq of the start).
        """
        with self._backend.read() as tx:
            asked = [{"session": each[0], "thread": each[1], "turn": each[2], "start": each[3]} for each in starts]
            tx.expect(("predecessor_turn", each) for each in asked)
            found = [tx.one("predecessor_turn", **each) for each in asked]
            return [
                None if row is None or row[1] is None or row[1] > start[3] else row[0]
                for start, row in zip(starts, found, strict=True)
            ]

    def rows_before(self, turns: Sequence[tuple[str, str, str, int]]) -> list[list[RawEvent]]:
        """Return the native rows of each of these turns that come before a seq: O(rows).

        A turn is (session, thread, turn, seq).
        """
        with self._backend.read() as tx:
            asked = [{"session": each[0], "thread": each[1], "turn": each[2], "before": each[3]} for each in turns]
            tx.expect(("turn_rows_before", each) for each in asked)
            return [[RawEvent(*row) for row in tx.all("turn_rows_before", **each)] for each in asked]

    def answer_turns(self, key: str) -> list[AnswerTurn]:
        """Return the turns begun under a capture, newest completion first (3.13)."""
        with self._backend.read() as tx:
            return [AnswerTurn(*row) for row in tx.all("answer_turns", key=key)]

    def evidence(self, key: str) -> list[Any]:
        """Return every evidence object of the recorder's events (R5.7). Raises CorruptError."""
        found = []
        for seq, text in self.input_evidence(key):
            payload = parse_payload(text, seq, key)
            found.append(payload.get("evidence") if isinstance(payload, dict) else None)
        return found


class _Prepared(msgspec.Struct, frozen=True):
    session: str
    thread: str
    turn: str
    kind: str
    key: str
    text: str


def database_time(now: Now) -> int | None:
    """Return what a query takes for the time of a heartbeat: None is the database's own clock.

    Machines that share a ledger have clocks of their own; a lease is measured by the one clock they share. A clock
    that was given to the ledger (in tests) stands for it.
    """
    return None if now is now_ms else now()


def fence(tx: Tx, session_id: str, driver: Driver, now: Now) -> None:
    """Require that ``driver`` is the stored tuple and has an exec (R9.10); touches the heartbeat. Raises StaleError."""
    changed = tx.run(
        "heartbeat",
        id=session_id,
        at=database_time(now),
        generation=driver.generation,
        exec=driver.exec_id,
        provider_generation=driver.provider_generation,
        provider_exec=driver.provider_exec_id,
    )
    if not changed:
        if tx.one("driver", id=session_id) is None:
            raise MissingError(f"no session {session_id}")
        raise StaleError(f"this process no longer drives session {session_id}")


def _prepare(session_id: str, receipt: Receipt) -> _Prepared:
    for each in (receipt.thread, receipt.turn):
        if type(each) is not str:  # the same number as a number would be another key than as text
            raise InvalidError(f"thread and turn are text, not {each!r}")
    kind = str(receipt.kind)
    if kind not in NATIVE_KINDS:
        raise InvalidError(
            f"{kind!r} is not a native receipt kind",
            hint="use retain() for observations, intend_turn() for intents, create_session() for inputs",
        )
    text = canonical(receipt.payload)
    return _Prepared(session_id, receipt.thread, receipt.turn, kind, receipt_key(kind, text), text)


def _native(item: _Prepared, at: int) -> Row:
    return (item.session, item.thread, item.turn, item.kind, item.key, at, item.text)


def _known(tx: Tx, item: _Prepared) -> int:
    found = tx.one(
        "find_receipt", session=item.session, thread=item.thread, turn=item.turn, kind=item.kind, key=item.key
    )
    if found is None or found[1] != item.text:
        raise ConflictError(
            f"conflicting {item.kind} receipt for session {item.session}, turn {item.turn}",
        )
    return int(found[0])


def _intent(tx: Tx, session_id: str, request_id: str) -> Row:
    row = tx.one("find_requested", session=session_id, request=request_id)
    if row is None:
        raise MissingError(f"no request {request_id} in session {session_id}")
    return row


def _check_author(row: Row, driver: Driver, session_id: str, request_id: str) -> None:
    if (row[3], row[4], row[5]) != (driver.exec_id, driver.provider_generation, driver.generation):
        raise ConflictError(f"request {request_id} of session {session_id} was made by another driver")


def _other_origin(session_id: str, turn: str) -> ConflictError:
    return ConflictError(f"another exec is recorded as the one that began turn {turn} of session {session_id}")
