"""The Claude harness: one conversation, held by one process at a time (semantics 6.1, 6.4; D1, D4, D12, D19, D20).

The process cannot be adopted: its stdin is ours. After our death it finishes its turn and exits; ``start`` waits for
that, and what was missed is read from the session's own file. A request's id is the uuid of its user line and the id of
its turn.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator
from typing import Any, Final

import msgspec

from turnlog.errors import InvalidError, RefusedError, TurnlogError, UnavailableError
from turnlog.harness import Batch, Delivery, EngineIdentity, HarnessConfig, SteerOutcome
from turnlog.harness._process import parse_version
from turnlog.harness.claude import launch, record
from turnlog.harness.claude.asks import check_policy
from turnlog.harness.claude.decode import self_turn, texts
from turnlog.harness.claude.disconnect import farewell
from turnlog.harness.claude.engine import Engine
from turnlog.harness.claude.launch import Wish
from turnlog.harness.claude.memory import Memory
from turnlog.harness.claude.observer import Observer

DEBOUNCE: Final = 0.01
"""Seconds to gather pieces of text before they are told."""


class ClaudeHarness:
    """Implements ``turnlog.harness.Harness`` for Claude Code."""

    provider = "claude"
    adoptable = False  # it is held by a pipe
    structured = True

    def __init__(self, config: HarnessConfig) -> None:
        check_policy(config.permissions)
        if config.endpoint is not None:
            raise InvalidError("Claude has no endpoint to reach", hint="leave --endpoint out")
        self._thread = _session_id(config.thread) if config.thread is not None else str(uuid.uuid4())
        self._config = config
        self._variables = launch.environment(config)
        self._observer = Observer(self._thread, config.permissions, config.own_requests)
        self._memory = Memory(config, self._thread, self._variables)
        self._engine: Engine | None = None
        self._wish = Wish()
        self._news = asyncio.Event()
        self._relaunching = False
        self._closed = False
        self._observed = self._telling = False

    async def preflight(self) -> None:
        await launch.check_version(launch.program(self._config, self._variables), self._variables)

    async def start(self) -> EngineIdentity:
        """Start Claude on the conversation, once no earlier process holds it. Idempotent while it runs.

        Raises UnavailableError (missing, too old, never ready, held by another program), MissingError.
        """
        engine = self._engine
        if engine is not None and not engine.gone and engine.identity is not None:
            return engine.identity
        record.private_folder(self._config.state_dir)
        await record.outwait(self._config.state_dir, self._thread, self._memory.progress)
        self._closed = False
        return await self._launch(Wish())

    async def _launch(self, wanted: Wish) -> EngineIdentity:
        await asyncio.to_thread(self._memory.refuse_other_writers)
        resume = bool(self._memory.files())
        program = launch.program(self._config, self._variables)
        engine = self._engine = Engine(self._config.state_dir, self._observer, self._news.set)
        self._observer.use(engine.name, fresh=not resume)
        argv = [str(program), *launch.arguments(self._config, self._thread, wanted, resume=resume)]
        try:
            identity = await engine.start(argv, thread=self._thread, cwd=self._config.cwd, variables=self._variables)
        except BaseException as error:
            await asyncio.shield(engine.stop(gently=False))
            if isinstance(error, UnavailableError):
                await launch.check_version(program, self._variables)  # too old explains everything
            raise
        self._wish = wanted
        if identity.version is None:  # 2.1.197 does not tell it in its first answer
            numbers = parse_version(await launch.check_version(program, self._variables))
            told = ".".join(map(str, numbers)) if numbers else None
            identity = engine.identity = msgspec.structs.replace(identity, version=told)
        return identity

    async def open_thread(self) -> str:
        """Return the session id: given, or chosen by us. Claude writes its file with the first turn."""
        self._require_engine()
        return self._thread

    def new_request_id(self) -> str:
        return str(uuid.uuid4())

    def turn_of(self, request_id: str) -> str | None:
        return request_id

    async def send(
        self, request_id: str, text: str, *, system: str | None = None, schema: dict[str, Any] | bool | None = None
    ) -> str | None:
        """Write a user line. While something runs Claude keeps it for later, or takes it into the running turn."""
        self._require_engine()
        await asyncio.to_thread(self._memory.require)
        wanted = launch.wish(system, schema)
        if wanted != self._wish:
            await self._relaunch(wanted)
        await self._write(request_id, text)
        return request_id

    async def steer(self, request_id: str, text: str) -> SteerOutcome:
        """Write a user line while a turn runs.

        Claude takes it in with the next tool result (then it is absorbed by the running turn); if no tool is called any
        more it becomes a turn of its own.
        """
        if not text.strip():
            raise InvalidError("nothing to say", hint="give a text")
        self._require_engine()
        if self._idle():
            return SteerOutcome.NOT_STEERABLE
        await self._write(request_id, text)
        return SteerOutcome.SENT

    async def _write(self, request_id: str, text: str) -> None:
        line = {
            "type": "user",
            "uuid": request_id,
            "session_id": self._thread,
            "parent_tool_use_id": None,
            "message": {"role": "user", "content": [{"type": "text", "text": text}]},
        }
        self._observer.expect(request_id)
        try:
            await asyncio.to_thread(self._memory.sending, request_id)
            await self._require_engine().write(line)
        except RefusedError:
            self._observer.forget(request_id)
            raise

    async def _relaunch(self, wanted: Wish) -> None:
        """Start another process on the same session: a schema and a system prompt belong to a process."""
        if self._observer.working():
            raise RefusedError("Claude still works on this conversation", hint="wait until it is done")
        self._relaunching = True
        try:
            await self._require_engine().stop(gently=True)
            await self._launch(wanted)
        except TurnlogError as error:
            raise RefusedError(f"Claude was not started again: {error.message}", hint=error.hint) from error
        finally:
            self._relaunching = False
            self._news.set()

    async def interrupt(self) -> None:
        """Interrupt the open turn and drop lines that wait; no-op when idle. The turn's result tells the outcome."""
        if self._idle():
            return
        self._observer.interrupting()
        answer = await self._require_engine().control({"subtype": "interrupt", "cancel_queued": True})
        self._observer.turns.withdrawn(texts(answer.get("cancelled")))
        self._news.set()

    async def answer(self, ask_id: str, answer: str, message: str | None = None) -> None:
        line = self._observer.asks.answer(ask_id, answer, message)
        try:
            await self._require_engine().write(line)
        except RefusedError:
            self._observer.asks.unanswered(ask_id)
            raise

    async def lookup(self, request_id: str) -> Delivery:
        """Look for a request: what Claude said of it, else its session's file, else whether it ever left."""
        if request_id in self._observer.turns.named:
            return Delivery.FOUND
        if request_id in self._observer.turns.narrated and await self.alive():
            return Delivery.UNKNOWN
        return await asyncio.to_thread(self._memory.look_up, request_id)

    async def observe(self) -> AsyncGenerator[Batch, None]:
        """Yield what the file told at first, then what Claude says, until it is gone or the harness is closed."""
        self._require_engine()
        batch = await self.recover()
        yield batch
        self._memory.recorded(batch)
        self._observed = True
        while True:
            self._telling = False  # asked for the next batch: the last one was taken
            await self._news.wait()
            await asyncio.sleep(DEBOUNCE)
            if self.closed():
                return
            self._news.clear()
            engine = self._require_engine()
            gone = engine.gone and not self._relaunching
            batch = self._observer.drain()
            self._telling = batch != Batch()
            engine.drained()
            if batch != Batch():
                yield batch
                self._memory.recorded(batch)
            if gone and not self.closed():
                yield farewell(engine, self._config, self._observer)
                return

    def closed(self) -> bool:
        """Tell whether ``stop`` or ``detach`` was called."""
        return self._closed

    async def recover(self) -> Batch:
        """Read the session's file: receipts of every turn whose end the wire did not already tell."""
        turns = self._observer.turns
        live = set(turns.open_requests())
        if turns.current is not None and turns.current.first_call is not None:
            live.add(self_turn(turns.current.first_call))
        return await asyncio.to_thread(self._memory.batch, frozenset(turns.own), turns.over, live)

    async def busy(self) -> bool:
        """Tell whether a turn or a background task runs, or is about to report.

        What Claude said of its background tasks must have been taken, too: whoever ends it then would lose that.
        """
        observer = self._observer
        if not await self.alive():
            return False
        if observer.working() or observer.background.reports():
            return True
        return observer.background.seen and self._observed and (self._telling or observer.pending > 0)

    async def alive(self) -> bool:
        return self._engine is not None and not self._engine.gone and self._engine.exit_code is None

    async def stop(self) -> None:
        self._closed = True
        self._news.set()
        if self._engine is not None:
            await self._engine.stop(gently=not self._observer.working())

    async def detach(self) -> None:
        """Close our side; Claude finishes what it does and exits (it cannot be taken over)."""
        self._closed = True
        self._news.set()
        if self._engine is not None:
            await self._engine.detach()

    def _idle(self) -> bool:
        """Tell whether no turn of ours runs or waits, and none of Claude's own."""
        return self._observer.turns.current is None and not self._observer.turns.open_requests()

    def _require_engine(self) -> Engine:
        if self._engine is None:
            raise UnavailableError("Claude is not started", hint="start the harness first")
        return self._engine


def _session_id(thread: str) -> str:
    try:
        return str(uuid.UUID(thread))
    except ValueError:
        raise InvalidError(f"not a Claude session id: {thread[:80]!r}", hint="Claude's session ids are UUIDs") from None
