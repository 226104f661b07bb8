"""One Claude process in a group of its own: pipes, its private log, and how it ends.

Lines of stdout go to the observer as they come; stderr goes to a bounded log, so that neither can block the program.
The pipes die with us: Claude then finishes the running turn and exits.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from turnlog.errors import MissingError, RefusedError, UnavailableError, UncertainError
from turnlog.harness import EngineIdentity
from turnlog.harness._process import Program
from turnlog.harness.claude import record
from turnlog.harness.claude.decode import one_line
from turnlog.harness.claude.observer import Observer
from turnlog.harness.claude.pipes import BoundedLog, Pipe, spawn, writable
from turnlog.process import ProcessIdentity, identify
from turnlog.receipts import canonical
from turnlog.wire.jsonl import JsonlDecoder, JsonlProblem

READY_DEADLINE: Final = 30.0
WRITE_DEADLINE: Final = 10.0
CONTROL_DEADLINE: Final = 10.0
QUIT_GRACE: Final = 5.0
"""Seconds an idle Claude has to exit by itself once its stdin is closed; it saves its running costs then."""

LAST_WORDS: Final = 2.0
POLL: Final = 0.05
PENDING_LIMIT: Final = 20_000
"""Things seen that nobody took yet, before we stop reading."""

_PIECE: Final = 1 << 16


class Engine:
    """A running Claude. ``news`` is called whenever something was seen, also the end."""

    def __init__(self, folder: Path, observer: Observer, news: Callable[[], None]) -> None:
        self._folder = folder
        self._observer = observer
        self._news = news
        self._popen: subprocess.Popen[bytes] | None = None
        self._program: Program | None = None
        self._record: Path | None = None
        self._decoder = JsonlDecoder()
        self._transports: list[asyncio.ReadTransport] = []
        self._open_pipes = 0
        self._paused = False
        self._broken = False
        self._answers: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._writing = asyncio.Lock()
        self.name = record.new_name()
        self._log = BoundedLog(folder / f"{self.name}.log")
        self.identity: EngineIdentity | None = None
        self.started_at = time.time_ns() // 1_000_000
        self.ended = asyncio.Event()

    @property
    def gone(self) -> bool:
        """Whether it ended and everything it said was read."""
        return self.ended.is_set()

    @property
    def exit_code(self) -> int | None:
        return self._program.exit_code() if self._program is not None else None

    @property
    def words(self) -> str:
        """The end of its stderr, safe to show."""
        lines = self._log.tail.decode(errors="replace").splitlines()
        return "\n".join(one_line(line) for line in lines if line.strip())

    async def start(self, argv: list[str], *, thread: str, cwd: Path, variables: Mapping[str, str]) -> EngineIdentity:
        """Start it and wait until it answers. Raises UnavailableError, MissingError."""
        popen = spawn(argv, cwd, variables)
        identity = identify(popen.pid) or ProcessIdentity(None, popen.pid, 0)
        self._popen, self._program = popen, Program(popen, identity, self._log.path)
        self._record = self._folder / f"{self.name}.json"
        record.write_record(self._record, record.Record(thread, identity))
        os.set_blocking(popen.stdin.fileno(), False)  # type: ignore[union-attr]
        loop = asyncio.get_running_loop()
        for pipe, take in ((popen.stdout, self._take), (popen.stderr, self._log.write)):
            self._open_pipes += 1
            transport, _ = await loop.connect_read_pipe(partial(Pipe, take, self._pipe_ended), pipe)
            self._transports.append(transport)
        self._spawn(self._watch(self._program))
        try:
            about = await self.control({"subtype": "initialize"}, READY_DEADLINE)
        except (RefusedError, UncertainError) as error:
            self._explain(thread, error)
            raise
        version = about.get("claude_code_version")
        told = version if isinstance(version, str) else None
        self.identity = EngineIdentity(None, identity.pid, identity.started_at, told)
        return self.identity

    # --- writing ----------------------------------------------------------------------------------------------------

    async def write(self, value: dict[str, Any]) -> None:
        """Write one line. Raises RefusedError when none of it was taken, UncertainError when some may have been."""
        # Shielded: a line that is cut in the middle would spoil the next one.
        await asyncio.shield(self._spawn(self._write(canonical(value).encode() + b"\n")))

    async def control(self, request: dict[str, Any], deadline: float | None = None) -> dict[str, Any]:
        """Send a control request and return its answer. Raises RefusedError, UncertainError (no answer)."""
        deadline = CONTROL_DEADLINE if deadline is None else deadline
        name = f"turnlog-{os.urandom(6).hex()}"
        answer = self._answers[name] = asyncio.get_running_loop().create_future()
        try:
            await self.write({"type": "control_request", "request_id": name, "request": request})
            ended = asyncio.ensure_future(self.ended.wait())
            try:
                await asyncio.wait({answer, ended}, timeout=deadline, return_when=asyncio.FIRST_COMPLETED)
            finally:
                ended.cancel()
            if not answer.done():
                why = "it ended" if self.gone else f"not within {deadline:g} s"
                raise UncertainError(f"Claude did not answer to {request['subtype']}: {why}")
            response = answer.result()
        finally:
            self._answers.pop(name, None)
            answer.cancel()
        if response.get("subtype") == "error":
            raise RefusedError(f"Claude refused {request['subtype']}: {one_line(str(response.get('error')))}")
        body = response.get("response")
        return body if isinstance(body, dict) else {}

    async def _write(self, data: bytes) -> None:
        async with self._writing:
            sent, until = 0, time.monotonic() + WRITE_DEADLINE
            while sent < len(data):
                stdin = self._popen.stdin if self._popen is not None else None
                if stdin is None or stdin.closed or self._broken:
                    raise RefusedError("Claude takes no input any more", hint="the process ended; run again to resume")
                try:
                    sent += os.write(stdin.fileno(), data[sent : sent + _PIECE])
                except BlockingIOError:
                    if await writable(stdin.fileno(), until - time.monotonic()):
                        continue
                    self._broken = sent > 0
                    problem = "Claude took no input in time"
                except OSError as error:
                    self._broken, problem = True, f"Claude takes no input any more: {error}"
                else:
                    continue
                raise UncertainError(problem) if sent else RefusedError(problem, hint="run again to resume")

    # --- reading ----------------------------------------------------------------------------------------------------

    def drained(self) -> None:
        """What was seen has been taken: read on."""
        if self._paused and self._transports:
            self._paused = False
            self._transports[0].resume_reading()

    def _take(self, data: bytes) -> None:
        self._lines(self._decoder.feed(data))
        if self._observer.pending > PENDING_LIMIT and not self._paused:
            self._paused = True
            self._transports[0].pause_reading()

    def _lines(self, found: list[Any]) -> None:
        for line in found:
            if isinstance(line, JsonlProblem):
                self._observer.problem(line)
            elif isinstance(line.value, dict) and line.value.get("type") == "control_response":
                self._response(line.value.get("response"))
            else:
                self._observer.take(line.value)
        replies, self._observer.replies = self._observer.replies, []
        for reply in replies:
            self._spawn(self._reply(reply))
        self._news()

    def _response(self, response: Any) -> None:
        name = response.get("request_id") if isinstance(response, dict) else None
        waiting = self._answers.get(str(name))
        if waiting is None:
            self._observer.answered(str(name))  # our own answer, echoed: Claude has it
        elif not waiting.done():
            waiting.set_result(response)

    async def _reply(self, reply: dict[str, Any]) -> None:
        with contextlib.suppress(RefusedError, UncertainError):  # then it is gone, which is told by its end
            await self._write(canonical(reply).encode() + b"\n")

    # --- the end ----------------------------------------------------------------------------------------------------

    async def stop(self, *, gently: bool) -> None:
        """End it and wait. ``gently``: let it exit by itself first."""
        self._close_stdin()
        if self._program is not None:
            if gently and not self.gone:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.ended.wait(), QUIT_GRACE)
            await self._program.end()
        await self._close()
        if self._record is not None:
            self._record.unlink(missing_ok=True)

    async def detach(self) -> None:
        """Close our side: Claude finishes the running turn and exits. Its record stays until it is gone."""
        self._close_stdin()
        if self._program is not None:
            self._program.leave()
        await self._close()

    async def _watch(self, program: Program) -> None:
        """Wait for the exit, and then for what is left in the pipes."""
        quiet: float | None = None
        while True:
            exited, read = program.exit_code() is not None, self._open_pipes == 0
            if exited and read:
                break
            if exited or read:
                # A child of it holds the pipes open, or it closed them and goes on.
                quiet = quiet or time.monotonic()
                if time.monotonic() - quiet > LAST_WORDS:
                    await program.end()
                    break
            await asyncio.sleep(POLL)
        self._lines(self._decoder.end())
        self.ended.set()
        self._news()

    def _pipe_ended(self) -> None:
        self._open_pipes -= 1

    def _close_stdin(self) -> None:
        if self._popen is not None and self._popen.stdin is not None:
            with contextlib.suppress(OSError):
                self._popen.stdin.close()

    async def _close(self) -> None:
        for transport in self._transports:
            transport.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.ended.set()
        await asyncio.sleep(0)  # the transports tell their end on the next round

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _explain(self, thread: str, error: Exception) -> None:
        """Raise what fits a process that was never ready, in its own words."""
        words = self.words
        last = words.splitlines()[-1] if words else "it said nothing"
        if "already in use" in words:
            raise UnavailableError(
                f"Claude refused: {last}", hint="another Claude holds this conversation; close it and try again"
            ) from error
        if "No conversation found" in words:
            raise MissingError(
                f"Claude has no conversation {thread} for this folder",
                hint="resume it in the folder where it began; Claude also deletes old histories (cleanupPeriodDays)",
            ) from error
        if self.exit_code is not None:
            raise UnavailableError(
                f"Claude ended with code {self.exit_code} before it was ready: {last}",
                hint=f"its own words are in {self._log.path}",
            ) from error
        raise UnavailableError(
            f"Claude was not ready within {READY_DEADLINE:g} s: {last}", hint=f"its own words are in {self._log.path}"
        ) from error
