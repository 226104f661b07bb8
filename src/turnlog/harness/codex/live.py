"""The Codex harness: one conversation on one app-server of its own (semantics 6.1, 6.3; D3, D4, D16, D20)."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator
from typing import Any, Final

import msgspec

from turnlog.errors import InvalidError, RefusedError, TurnlogError, UnavailableError, UncertainError
from turnlog.harness import Batch, Delivery, EngineIdentity, HarnessConfig, SteerOutcome
from turnlog.harness.codex import history
from turnlog.harness.codex.connection import Connection, RpcError
from turnlog.harness.codex.decode import Schema, text_of, user_messages
from turnlog.harness.codex.engine import Engine
from turnlog.harness.codex.permissions import check_policy
from turnlog.harness.codex.requests import Requests, first_of
from turnlog.harness.codex.structured import Schemas, demand, strict
from turnlog.harness.codex.threads import open_thread
from turnlog.harness.codex.watch import Watch

SEND_DEADLINE: Final = 10.0
STEER_DEADLINE: Final = 15.0
INTERRUPT_DEADLINE: Final = 5.0
START_WAIT: Final = 10.0
"""Seconds that a promised turn has to start before a steer or an interrupt gives up on it."""

_NOT_STEERABLE: Final = ("no active turn", "expected active turn", "NotSteerable", "not steerable")


class CodexHarness:
    """Implements ``turnlog.harness.Harness`` for Codex.

    An engine is held by its pipe, so it cannot be left running: ``detach`` ends it as ``stop`` does, and a turn that
    runs then is written down by Codex as interrupted.
    """

    provider = "codex"
    adoptable = False  # it is held by a pipe
    structured = True

    def __init__(self, config: HarnessConfig) -> None:
        check_policy(config.permissions)
        self._config = config
        self._engine = Engine(config)
        self._requests = Requests(config.own_requests)
        self._schemas = Schemas(config.state_dir)
        self._thread = config.thread
        self._opening = asyncio.Lock()
        self._sending = asyncio.Lock()
        self._watch: Watch | None = None
        self._interrupted: set[str] = set()
        self._logged_in = False

    @property
    def connection(self) -> Connection:
        """The connection to the running engine."""
        return self._engine.connection

    async def preflight(self) -> None:
        await self._engine.preflight()

    async def start(self) -> EngineIdentity:
        if not self._engine.alive():
            self._watch = None
        return await self._engine.start(self._requests.tap)

    async def open_thread(self) -> str:
        """Return the provider thread; make it at most once (6.3).

        Raises MissingError when Codex does not have the configured one, UnavailableError, UncertainError.
        """
        async with self._opening:
            if self._watch is not None and self._thread is not None:
                return self._thread
            config = self._config
            if self._thread is not None:
                config = msgspec.structs.replace(config, thread=self._thread)
            opened = await open_thread(self.connection, config)
            self._thread = opened.thread
            self._requests.restart(opened.thread)
            self._watch = Watch(self._engine, opened, self._config, self._requests, self._schemas)
            return opened.thread

    def new_request_id(self) -> str:
        return f"req_{uuid.uuid4().hex}"

    def turn_of(self, request_id: str) -> str | None:
        return None  # Codex chooses

    async def send(
        self, request_id: str, text: str, *, system: str | None = None, schema: Schema | None = None
    ) -> str | None:
        """Begin a turn and return its id; None when it only joined one that ran already.

        Codex takes system words only when a conversation is made, so here they stand before the text.
        """
        self._require_watch()
        await self._require_login()
        params = {"threadId": self._require_thread(), "clientUserMessageId": request_id}
        async with self._sending:
            connection = self.connection
            body = _input(text, system, schema)
            if schema is not None:
                self._schemas.keep(request_id, schema)
                if strict(schema):
                    body["outputSchema"] = schema
            self._requests.send(request_id, connection.seq)

            def answered(result: Any) -> None:
                turn = first_of(result)
                if turn is not None:
                    self._requests.decide(request_id, turn)
                    connection.tell(request_id)

            try:
                await connection.request("turn/start", {**params, **body}, deadline=SEND_DEADLINE, on_reply=answered)
            except RefusedError:
                self._requests.refuse(request_id)
                raise
        if self._requests.unplaced(request_id):
            raise UncertainError("Codex took the request but told no turn")
        return self._requests.turn_of(request_id)

    async def steer(self, request_id: str, text: str) -> SteerOutcome:
        """Send text into the open turn; that turn's end is the end of this request too."""
        if not text.strip():
            raise InvalidError("nothing to say", hint="give a text")
        self._require_watch()
        turn = await self._requests.running(START_WAIT)
        if turn is None:
            return SteerOutcome.NOT_STEERABLE
        connection = self.connection
        self._requests.send(request_id, connection.seq)
        params = {
            "threadId": self._require_thread(),
            "expectedTurnId": turn,
            "clientUserMessageId": request_id,
            **_input(text),
        }

        def answered(result: Any) -> None:
            self._requests.decide(request_id, (text_of(result, "turnId") if isinstance(result, dict) else None) or turn)
            connection.tell(request_id)

        try:
            await connection.request("turn/steer", params, deadline=STEER_DEADLINE, on_reply=answered)
        except RefusedError as error:
            self._requests.refuse(request_id)
            detail = f"{error.detail} {error.data}" if isinstance(error, RpcError) else ""
            if any(part in detail for part in _NOT_STEERABLE):
                return SteerOutcome.NOT_STEERABLE
            raise
        return SteerOutcome.SENT

    async def interrupt(self) -> None:
        """Ask Codex to stop the open turn, once; no-op when idle. It reports the end by itself."""
        self._require_watch()
        turn = await self._requests.running(START_WAIT)
        if turn is None and self._requests.open is not None:
            raise UnavailableError(f"Codex promised a turn and did not start it within {START_WAIT:g} s")
        if turn is None or turn in self._interrupted:
            return
        self._interrupted.add(turn)
        params = {"threadId": self._require_thread(), "turnId": turn}
        try:
            await self.connection.request("turn/interrupt", params, deadline=INTERRUPT_DEADLINE)
        except RpcError as error:
            if "no active turn" not in error.detail:
                self._interrupted.discard(turn)
                raise

    async def answer(self, ask_id: str, answer: str, message: str | None = None) -> None:
        """Answer a permission. Codex has no place for a message with a rejection."""
        self._require_watch().asks.answer(ask_id, answer)

    async def lookup(self, request_id: str) -> Delivery:
        """Look for the user message that carries the request id, in what was heard and in the history."""
        self._require_watch()
        requests = self._requests
        if requests.placed(request_id):
            return Delivery.FOUND
        whole = True
        try:
            async for turn in history.turns(self.connection, self._require_thread()):
                if request_id in user_messages(turn):
                    return Delivery.FOUND
                whole = whole and turn.whole
        except TurnlogError:
            return Delivery.UNKNOWN
        if requests.placed(request_id):
            return Delivery.FOUND  # it was told after that page had left
        # While the engine that was asked lives, it may still do it; a turn told without its words may hold it.
        return Delivery.UNKNOWN if requests.unplaced(request_id) or not whole else Delivery.ABSENT

    async def observe(self) -> AsyncGenerator[Batch, None]:
        watch = self._require_watch()
        async with contextlib.aclosing(watch.batches()) as batches:
            async for batch in batches:
                yield batch

    async def recover(self) -> Batch:
        return await self._require_watch().recover()

    async def busy(self) -> bool:
        """Tell whether a turn of the conversation, or of a subagent of it, runs.

        What a subagent said last must have been taken, too: whoever ends the engine then would lose it.
        """
        requests = self._requests
        if not self._engine.alive():
            return False
        telling = self._watch is not None and self._watch.telling() and bool(requests.others)
        return requests.open is not None or requests.busy_elsewhere() or telling

    async def alive(self) -> bool:
        return self._engine.alive()

    async def stop(self) -> None:
        if self._watch is not None:
            await self._watch.close()
            self._watch = None
        await self._engine.stop()

    async def detach(self) -> None:
        """End the engine: the pipe that holds it ends with us, and Codex with the pipe."""
        await self.stop()

    async def _require_login(self) -> None:
        """Refuse early where every request would be refused late, after minutes of retries."""
        if self._logged_in:
            return
        account: dict[str, Any] = {}
        with contextlib.suppress(UnavailableError):
            account = await self.connection.read("account/read", {})
        if account.get("requiresOpenaiAuth") is True and account.get("account") is None:
            raise RefusedError("Codex is not logged in; nothing was sent", hint="run `codex login`")
        self._logged_in = True

    def _require_thread(self) -> str:
        if self._thread is None:
            raise UnavailableError("no Codex conversation is open", hint="open the thread first")
        return self._thread

    def _require_watch(self) -> Watch:
        if self._watch is None:
            raise UnavailableError("no Codex conversation is open", hint="start the harness and open the thread")
        return self._watch


def _input(text: str, system: str | None = None, schema: Schema | None = None) -> dict[str, Any]:
    if system:
        text = f"{system}\n\n{text}"
    if schema is not None and not strict(schema):
        text = demand(text, schema)
    return {"input": [{"type": "text", "text": text}]}
