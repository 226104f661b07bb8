"""The observation loop of one conversation: wake, read, say; reconnect; notice silence and the end of the server.

State between looks lives in the family (what was read and said); this module decides *when* to look.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final

import httpx
import msgspec

from turnlog.clock import now_ms
from turnlog.errors import UnavailableError
from turnlog.harness import Ask, Batch, ConversationEvent, HarnessConfig
from turnlog.harness._http import HttpClient, HttpStatusError
from turnlog.harness.opencode.asks import Asks
from turnlog.harness.opencode.disconnect import farewell
from turnlog.harness.opencode.events import Delta, Narrator
from turnlog.harness.opencode.family import Family, FamilyLook
from turnlog.harness.opencode.feed import Connected, Lost, PartKind, Settled, Signal, Wake, follow
from turnlog.harness.opencode.history import ThreadHistory
from turnlog.harness.opencode.plan import Plan
from turnlog.harness.opencode.quiet import GRACE, Quiet, Stalled
from turnlog.redact import sanitise, strip_terminal

DEBOUNCE: Final = 0.005
"""Seconds to gather further signals before reading."""

PART_PAUSE: Final = 0.2
"""Least seconds between reads that only tool progress asks for."""

SAFETY: Final = 5.0
"""Seconds between looks while one of our turns is open, whatever the stream says."""

RETRY: Final = 0.5
PROBE: Final = 0.3
LONGEST_PROBE: Final = 3.0
REFUSALS: Final = 6
SILENT_LIMIT: Final = 30.0
READ_FAILURES: Final = 10


class Watch:
    """Observes one conversation. ``http`` and ``gone`` come from the engine and change when it is started again."""

    def __init__(
        self, http: HttpClient, gone: Callable[[], bool], thread: str, params: dict[str, str], config: HarnessConfig
    ) -> None:
        self.http = http
        self._gone = gone
        self._thread = thread
        self._params = params
        self._config = config
        self._family = Family(http, thread, params, config.own_requests)
        self._asks = Asks(config.permissions)
        self._quiet = Quiet(self._family.root.observer)
        self._narrator = Narrator()
        self._queue: asyncio.Queue[Signal | None] = asyncio.Queue()
        self._plan = Plan()
        self._reader: asyncio.Task[None] | None = None
        self._reading = asyncio.Lock()
        self._settled = asyncio.Event()
        self._settled.set()
        self._closed = False
        self._last_look = 0.0
        self._failures = 0
        self._status = "idle"

    # --- what the harness tells -------------------------------------------------------------------------------------

    def use(self, http: HttpClient, gone: Callable[[], bool], *, another: bool) -> None:
        """Go on with a new connection, to ``another`` server or to the same one."""
        self.http, self._gone = http, gone
        self._family.use(http)
        if another:
            self._quiet.restarted()

    def expect(self, request: str) -> None:
        """Count a request as ours, before it is sent: the answer may be seen before the reply to the request."""
        self._family.root.observer.own.add(request)
        self._family.root.observer.narrated.add(request)
        self._quiet.expect(request)

    def forget(self, request: str) -> None:
        """A request was certainly not taken."""
        self._family.root.observer.own.discard(request)
        self._family.root.observer.narrated.discard(request)
        self._quiet.forget(request)

    def sent(self, request: str) -> None:
        """A request was taken; from now on silence about it is noticed."""
        self._quiet.sent(request)
        self._queue.put_nowait(Wake("sent", self._thread))

    def waiting(self) -> bool:
        """Tell whether a request of this object is without an end."""
        return bool(self._quiet.waiting())

    def may_appear(self, request: str) -> bool:
        """Tell whether the server that runs now was asked this and did not refuse."""
        return self._quiet.asked(request)

    async def aborting(self, abort: Callable[[], Awaitable[None]]) -> None:
        """Send an abort and remember which messages were open when it was accepted."""
        observer = self._family.root.observer
        open_messages = await self.history().open_messages()
        requests = observer.open_requests()
        await abort()
        observer.aborted |= open_messages
        self._quiet.aborted(requests)
        self._queue.put_nowait(Wake("abort", self._thread))

    def history(self) -> ThreadHistory:
        """Return the history of our own conversation."""
        return self._family.root.history

    def closed(self) -> bool:
        """Tell whether ``close`` was called."""
        return self._closed

    async def close(self) -> None:
        """End the observation; nothing more is said."""
        self._closed = True
        self._queue.put_nowait(None)
        await self._stop_reader()
        async with self._reading:
            pass  # a read under way must end before its connections are closed

    async def recover(self) -> Batch:
        """Read everything once with a fresh memory (6.6)."""
        observer = self._family.root.observer
        family = Family(self.http, self._thread, self._params, observer.own)
        family.root.observer.aborted |= observer.aborted
        look = await family.look({}, full=True)
        batch = _batch(look)
        quiet = Quiet(family.root.observer)
        if not quiet.waiting() or not await quiet.is_idle(self.http, self._params):
            return batch
        await asyncio.sleep(GRACE)
        later = _batch(await family.look({self._thread: ()}))
        stalled = quiet.give_up()
        return Batch(
            receipts=(*batch.receipts, *later.receipts),
            notes=(*batch.notes, *later.notes, *stalled.notes),
            children=(*batch.children, *later.children),
            settled=(*batch.settled, *later.settled),
            stalled=stalled.requests,
        )

    # --- the loop ---------------------------------------------------------------------------------------------------

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """Yield what is seen until the server is gone or ``close`` is called."""
        pause, connected_at, looked = 0.0, 0.0, False
        broken_off: Lost | None = None
        self._connect(pause)
        try:
            while not self.closed():
                await self._gather()
                if self.closed():
                    return
                lost, self._plan.lost = self._plan.lost, None
                if self._plan.full:
                    connected_at = time.monotonic()
                try:
                    async with self._reading:
                        batch = await self._look()
                except UnavailableError as error:
                    batch, first = Batch(), False
                    if (broken := self._read_failed(error)) is not None and not self.closed():
                        yield farewell(broken, self._config, self._family.root.observer, self._narrator)
                        return
                else:
                    first, looked = not looked, True
                # The first look is told even when it saw nothing: whoever waits for it may send now.
                if batch != Batch() or first:
                    yield batch
                if lost is None:
                    continue
                if lost.started_at is not None:
                    broken_off = lost
                if not await self._server_lives():
                    # A server that is ending may answer once more; what matters is the stream that broke off before.
                    lost = broken_off or lost
                    if not self.closed():
                        yield farewell(lost, self._config, self._family.root.observer, self._narrator)
                    return
                # A stream that ends at once, again and again, must not become a busy loop.
                quick = time.monotonic() - connected_at < 1.0
                pause = min(2.0, max(0.1, pause * 2)) if quick else 0.0
                self._connect(pause)
        finally:
            await self._stop_reader()

    def _connect(self, pause: float) -> None:
        async def run() -> None:
            await asyncio.sleep(pause)
            await follow(self.http, self._params, self._queue, self._settled)

        self._reader = asyncio.create_task(run())

    async def _stop_reader(self) -> None:
        reader, self._reader = self._reader, None
        # A connection whose making is cancelled can be left open by the library below: give it a moment.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RETRY):
                await self._settled.wait()
        # Again until it is done: a cancellation can be lost in a library below.
        while reader is not None and not reader.done():
            reader.cancel()
            await asyncio.wait([reader], timeout=1)

    async def _gather(self) -> None:
        """Wait for signals or the next due moment, and put them into the plan."""
        first: Signal | None = None
        if self._failures or not self._plan.ready:  # else the last look left something to do
            try:
                async with asyncio.timeout(self._due()):
                    first = await self._queue.get()
            except TimeoutError:
                self._plan.touch(self._thread)
                self._quiet.ask()
                return
            self._note(first)
        self._drain()
        if not self._plan.reads or self._plan.lost is not None:
            return  # only streamed text, which is shown at once; or nothing left to wait for
        until = time.monotonic() + DEBOUNCE
        if isinstance(first, Wake) and first.why == "message.part.updated":
            until = max(until, self._last_look + PART_PAUSE)
        while (left := until - time.monotonic()) > 0:
            try:
                async with asyncio.timeout(left):
                    signal = await self._queue.get()
            except TimeoutError:
                break
            self._note(signal)
            if not (isinstance(signal, Wake) and signal.why == "message.part.updated"):
                until = min(until, time.monotonic() + DEBOUNCE)
        self._drain()

    def _due(self) -> float | None:
        """Return the seconds until a look is due without any signal; None: when something happens."""
        if self._failures:
            return RETRY
        due = [wait for wait in (self._quiet.due(), SAFETY if self._quiet.waiting() else None) if wait is not None]
        return min(due, default=None)

    def _drain(self) -> None:
        while not self._queue.empty():
            self._note(self._queue.get_nowait())

    def _note(self, signal: Signal | None) -> None:
        plan = self._plan
        if isinstance(signal, Connected):
            plan.full = plan.asks = True
            self._quiet.ask()
        elif isinstance(signal, Lost):
            plan.lost = signal
        elif isinstance(signal, Delta):
            if signal.session in {None, self._thread}:
                self._narrator.hold(signal)
        elif isinstance(signal, PartKind):
            self._narrator.part(signal.part, signal.kind)
        elif isinstance(signal, Settled):
            plan.events += self._asks.settled(signal.ask, signal.reply)
        elif isinstance(signal, Wake):
            self._wake(signal)

    def _wake(self, wake: Wake) -> None:
        self._plan.wake(wake, self._thread, self._family.members)
        if wake.session == self._thread and wake.status is not None:
            self._status_event(wake.status)
        if wake.session == self._thread and wake.error is not None:
            self._quiet.failed(wake.error)

    def _status_event(self, status: dict[str, object]) -> None:
        kind = str(status.get("type"))
        if kind == "idle":
            self._quiet.idle()
        else:
            self._quiet.busy()
        # Busy and idle are said by the turn's own boundaries; an idle report may even come after the next turn began.
        if kind == "retry" or (kind == "busy" and self._status == "retry"):
            words = status.get("message")
            text = strip_terminal(sanitise(words)) if isinstance(words, str) else None
            self._plan.events.append(ConversationEvent("status_changed", status=kind, message=text))
        self._status = kind

    async def _look(self) -> Batch:
        plan = self._plan
        events: list[ConversationEvent] = []
        if not plan.reads:
            self._plan = Plan()
            return Batch(events=(*self._pieces(), *plan.events))
        look = await self._family.look(plan.touched, full=plan.full)
        self._plan, self._failures, self._last_look = Plan(), 0, time.monotonic()
        self._drain()  # pieces that came while we read belong before the parts that ended
        events += look.events("start")
        events += self._pieces()
        if look.root is not None:
            for request, message in look.root.narrated:
                events += self._narrator.content(request, message)
        events += plan.events
        asks: tuple[Ask, ...] = ()
        stalled = Stalled()
        try:
            if plan.asks or look.children:  # a subagent that nobody knew may have asked before
                asks, ask_events = await self._asks.read(self.http, self._params, self._family)
                events += ask_events
            stalled = await self._quiet.check(self.http, self._params)
        except UnavailableError:
            # What was read must not be lost because this failed.
            self._failures += 1
            self._plan.asks = self._plan.asks or plan.asks or bool(look.children)
            self._quiet.ask()
        events += [*look.events("end"), *stalled.events]
        batch = _batch(look)
        notes = (*batch.notes, *stalled.notes)
        return msgspec.structs.replace(batch, notes=notes, events=tuple(events), asks=asks, stalled=stalled.requests)

    def _pieces(self) -> list[ConversationEvent]:
        observer = self._family.root.observer
        return list(self._narrator.pieces(self.history().messages.get, observer.admitted))

    # --- when things break ------------------------------------------------------------------------------------------

    def _read_failed(self, error: UnavailableError) -> Lost | None:
        """Count a failed read; after too many the server counts as lost although it may answer otherwise."""
        self._failures += 1
        if self._failures < READ_FAILURES:
            return None
        kind = "response_error_status" if isinstance(error, HttpStatusError) else "connection_failed"
        return Lost(kind, str(error), None, now_ms(), None)

    async def _server_lives(self) -> bool:
        """Probe until the server answers (True), or is certainly gone or silent for too long (False)."""
        until = time.monotonic() + SILENT_LIMIT
        refusals, wait, probe = 0, 0.1, PROBE
        while not self.closed() and refusals < REFUSALS and time.monotonic() < until:
            if self._gone():
                return False
            try:
                async with self._reading:
                    await self.http.read("/global/health", deadline=probe)
            except HttpStatusError:
                return True
            except UnavailableError as error:
                refusals += isinstance(error.__cause__, httpx.ConnectError)
            else:
                return True
            await asyncio.sleep(wait)
            wait, probe = min(1.0, wait * 2), min(LONGEST_PROBE, probe * 2)
        return False


def _batch(look: FamilyLook) -> Batch:
    return Batch(receipts=look.receipts(), notes=look.notes(), children=tuple(look.children), settled=look.settled())
