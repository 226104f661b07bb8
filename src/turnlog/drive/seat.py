"""The driver's seat of one conversation: claimed tuple, running engine, open thread, and what was seen since.

One task watches the provider (`harness.observe`) and records every batch through intake; another takes requests from
other terminals (D20); a third keeps the heartbeat. Whoever waits for a turn is woken by ``changed``.

The heartbeat renews the lease that other machines go by (claim.py). Every write to the provider passes the fence in
the ledger first, so a driver that cannot reach the ledger sends nothing. What it observes meanwhile is kept and
recorded when the ledger is back. When that takes so long that the lease would run out, the driver is cut off: it
interrupts its turn and ends its engine, before another machine can begin to work beside it, and sends nothing any more.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

import anyio
from anyio import to_thread

from turnlog.api import Ledger
from turnlog.drive.claim import Claim
from turnlog.drive.lease import RETRY_S, Lease
from turnlog.drive.permissions import Permissions
from turnlog.drive.types import Listener, RunOptions
from turnlog.errors import ConflictError, InvalidError, StaleError, TurnlogError, UnavailableError
from turnlog.harness import Batch, Harness, HarnessConfig, harness_for
from turnlog.model import Driver, EventKind, Session

WORDS: Final = frozenset({"message", "thought", "reasoning", "plan"})
"""Kinds of items that only say something; any other kind may have changed the world."""

PARTIAL_LIMIT: Final = 1_000_000
"""Characters kept of a streamed answer, in case its turn never ends."""

HEARTBEAT_S: Final = 10.0
"""Seconds between signs of life, with a lease of a minute or more; more often with a shorter one."""

ENDING_S: Final = 5.0
FIRST_LOOK_S: Final = 30.0
T = TypeVar("T")
P = ParamSpec("P")


async def in_thread(call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a ledger call in a thread; it is not abandoned when the caller is cancelled."""
    return await to_thread.run_sync(partial(call, *args, **kwargs))


class Seat:
    """Everything that is needed to act on one conversation as its driver."""

    def __init__(
        self, ledger: Ledger, session: Session, claim: Claim, harness: Harness, options: RunOptions, listener: Listener
    ) -> None:
        self.ledger = ledger
        self.session = session
        self.driver: Driver = claim.driver
        self.adopted = claim.engine_alive or options.endpoint is not None
        """The engine worked before this driver came, and may have been asked something then."""
        self.harness = harness
        self.listener = listener
        self.thread = ""
        self.statuses: dict[str, str] = {}
        self.errors: dict[str, str] = {}
        self.settled: dict[str, str] = {}
        self.stalled: set[str] = set()
        self.turn: str | None = None
        self.steers: list[str] = []
        self.effects = False
        self._texts: dict[str, list[str]] = {}
        self._lengths: dict[str, int] = {}
        self.policy: str | None = None
        self.engine_gone = False
        self.lease = Lease(lambda: ledger.heartbeat(session.id, claim.driver), options.lease_s)
        self.failure: TurnlogError | None = None
        self._changed = anyio.Event()
        self._looked = anyio.Event()
        self.permissions = Permissions(
            options.permissions, ask=listener.permission, answer=self._answer, retain=self._retain
        )

    # --- waiting

    @property
    def changed(self) -> anyio.Event:
        """The event that is set when something new was seen; take it before looking, then wait for it."""
        return self._changed

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    def successor(self, turn: str) -> str:
        """Return the turn that took over the work of ``turn`` in the end (D19); itself when none did."""
        seen = {turn}
        while (later := self.settled.get(turn)) is not None and later not in seen:
            seen.add(later)
            turn = later
        return turn

    def outcome(self, turn: str) -> str | None:
        """Return the status of a turn, or of the one that took over its work (D19).

        None while it is open; ``unknown`` when the provider is idle without having told an end.
        """
        last = self.successor(turn)
        return self.statuses.get(last) or ("unknown" if last in self.stalled else None)

    def _hear(self, turn: str, text: str) -> None:
        """Keep what was streamed of a turn, up to a bound: the program may lose it with its process."""
        held = self._lengths.get(turn, 0)
        if held < PARTIAL_LIMIT:
            self._texts.setdefault(turn, []).append(text)
            self._lengths[turn] = held + len(text)

    async def note_unknown(self, turn: str, why: str) -> None:
        """Record that this command learned no end of a turn, with what was streamed of its answer."""
        source, evidence = f"unknown:{self.thread}:{turn}", {"why": why}
        await self._retain(turn, source, evidence)
        text = "".join(self._texts.get(turn, ()))
        if text:
            await self._retain(turn, f"partial:{self.thread}:{turn}", {"text": text, "streamed": True})

    def open_steer(self) -> str | None:
        """Return the newest steer that has a turn of its own without an end; None when all are answered.

        A program may queue what is said into a running turn as the next turn; the command waits for that too, else
        ending its engine would lose what a person said.
        """
        return next((turn for turn in reversed(self.steers) if self.outcome(turn) is None), None)

    def error_of(self, turn: str) -> str | None:
        """Return the provider's words on why a turn did not complete."""
        return self.errors.get(self.successor(turn))

    def fail(self, error: TurnlogError) -> None:
        """Stop driving because of an error that concerns the whole conversation."""
        self.failure = self.failure or error
        self._wake()

    # --- setting up

    async def start(self) -> None:
        """Start or adopt the engine, open the thread, record both, under the fence (6.2.1)."""
        ledger, session, driver = self.ledger, self.session, self.driver
        await in_thread(ledger.record_launch, session.id, driver, "reserved")
        await in_thread(ledger.record_launch, session.id, driver, "spawn_requested")
        try:
            engine = await self.harness.start()
        except OSError as error:
            what = f"the engine cannot be started: {error}"
            raise UnavailableError(what, hint="check the disk and the permissions of the folders") from error
        self.policy = engine.permissions
        if engine.pid is not None and engine.started_at is not None:
            pid, started_at = engine.pid, engine.started_at
            await in_thread(ledger.record_process, session.id, driver, pid, started_at)
        async with self.dispatch():  # it may create a conversation at the provider (promise 3)
            self.thread = await self.harness.open_thread()
        await in_thread(ledger.record_connection, session.id, driver, engine.endpoint, self.thread)

    async def watch(self) -> None:
        """Record everything the provider says until its engine is gone."""
        try:
            async with contextlib.aclosing(self.harness.observe()) as batches:
                async for batch in batches:
                    await self.take(batch)
                    self._looked.set()
        except TurnlogError as error:
            self.fail(error)
        self.engine_gone = True
        self._looked.set()
        self._wake()

    async def take(self, batch: Batch) -> int:
        """Record one batch, then tell about it. Returns the number of new receipts."""
        for request_id, turn in batch.accepted:
            self.settled.setdefault(request_id, turn)
            await self.keep(self._accept, request_id, turn)
        taken = await self.keep(self.ledger.take_batch, self.session, self.thread, batch)
        for receipt in batch.receipts:
            if receipt.thread == self.thread and receipt.kind == EventKind.COMPLETED:
                self.statuses.setdefault(receipt.turn, str(receipt.payload.get("status")))
        for turn, successor in batch.settled:
            self.settled.setdefault(turn, successor)
        self.stalled.update(batch.stalled)
        for event in batch.events:
            if event.type == "error" and event.turn_id and event.message:
                self.errors[event.turn_id] = event.message
            if event.type == "text_delta" and event.turn_id and event.content:
                self._hear(event.turn_id, event.content)
            if event.item is not None and event.item.get("kind") not in WORDS:
                self.effects = True
            if event.type in ("permission_asked", "permission_settled"):
                await self.permissions.told(event)
            self.listener.event(event)
        self.permissions.ask(batch.asks)
        self._wake()
        return taken.new

    async def _answer(self, ask_id: str, answer: str) -> None:
        async with self.dispatch():
            await self.harness.answer(ask_id, answer)

    async def _retain(self, turn: str | None, source: str, evidence: dict[str, Any]) -> None:
        with contextlib.suppress(ConflictError):  # told before, in other words; the first stays
            await self.keep(self.ledger.retain_for_turn, self.session.id, self.thread, turn, source, evidence)

    async def keep(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Record what was observed, in a thread; again while the ledger cannot be had, until the lease is used up.

        ``call`` must be one that changes nothing the second time (promise 2). Raises UnavailableError then.
        """
        while True:
            try:
                return await in_thread(call, *args, **kwargs)
            except UnavailableError:
                if self.lease.cut_off or self.lease.left_s() <= 0:
                    raise
            await anyio.sleep(RETRY_S)

    def _accept(self, request_id: str, turn: str) -> None:
        """Link a request to the turn that the provider's history names, on behalf of whoever sent it (D3)."""
        for intent in self.ledger.outstanding_intents(self.session.id):
            if intent.request_id == request_id and intent.turn is None:
                with contextlib.suppress(ConflictError):  # another origin is recorded; it stays
                    self.ledger.accept_turn(self.session.id, intent.author, request_id, turn)

    async def first_look(self) -> None:
        """Wait until the provider's history was read once: nothing is sent before (6.2.1). Raises UnavailableError."""
        with anyio.move_on_after(FIRST_LOOK_S) as patience:
            await self._looked.wait()
        if self.failure is not None:
            raise self.failure
        if patience.cancelled_caught:
            raise UnavailableError(
                f"{self.session.provider} did not show its history within {FIRST_LOOK_S:g} s",
                hint="nothing was sent; try again",
            )

    async def heartbeat(self) -> None:
        """Renew the lease. Losing the fence ends the driving (promise 3), and so does losing the ledger for too long.

        Ended by either, with ``failure`` set; in the second case the engine is ended first.
        """
        while True:
            await anyio.sleep(min(HEARTBEAT_S, self.lease.pause_s))
            try:
                if not await self.lease.renewed():
                    await self._cut_off()
                    return
            except StaleError as error:
                self.fail(error)
                return

    def _require_reached(self) -> None:
        if self.lease.cut_off:
            raise UnavailableError("this process was cut off from the ledger", hint="resume the conversation later")

    async def _cut_off(self) -> None:
        """End the turn and its engine without asking the ledger, then the driving."""
        self.lease.cut_off = True
        what = f"the ledger could not be reached for {self.lease.silent_s():.0f} s"
        self.listener.notice(f"{what}; ending the turn, as another machine may take the conversation over")
        for ending in (self.harness.interrupt, self.harness.stop):
            # The engine may be the one that hangs: it is given a bounded time, then the next means is tried.
            with anyio.move_on_after(ENDING_S, shield=True), contextlib.suppress(TurnlogError, OSError):
                await ending()
        self.fail(
            UnavailableError(
                f"{what}; the turn was ended",
                hint="when the ledger can be reached again, `turnlog recover` reads what became of the turn",
            )
        )

    async def end_engine(self) -> bool:
        """End the engine, unless a newer driver has taken it over: that one is only left (promise 3).

        Tells whether it was ended. A newer driver that replaced the engine does not use ours.
        """
        try:
            async with self.dispatch():
                await self.harness.stop()
        except StaleError:
            now = await in_thread(self.ledger.driver, self.session.id)
            if now is not None and now.provider_generation == self.driver.provider_generation:
                await self.harness.detach()
                return False
            await self.harness.stop()
        except UnavailableError:  # the ledger cannot be asked; an engine that nobody ends is worse
            await self.harness.stop()
        return True

    @contextlib.asynccontextmanager
    async def dispatch(self) -> AsyncIterator[None]:
        """Hold the conversation's lock and fence around one bounded write to the provider (R9.11, D10).

        Raises StaleError, UnavailableError: then nothing was written.
        """
        self._require_reached()
        guard = self.ledger.driving(self.session.id, self.driver)
        await to_thread.run_sync(guard.__enter__)
        try:
            self._require_reached()  # it may have been cut off while it waited
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(guard.__exit__, None, None, None)


def require_folder(path: str) -> None:
    """Raise InvalidError unless ``path`` is a folder that an agent can work in."""
    if not Path(path).is_dir():
        raise InvalidError(f"no folder {path}", hint="name an existing folder with --cwd, or bring this one back")


def own_requests(ledger: Ledger, session_id: str, thread: str | None) -> frozenset[str]:
    """Return the request ids of ours on a provider's thread, also those of drivers that are dead."""
    return frozenset(name for name, _ in ledger.own_request_ids(session_id, thread))


def harness_of(
    session: Session,
    options: RunOptions,
    thread: str | None,
    own: frozenset[str],
    env: dict[str, str],
    *,
    adopt_any: bool = False,
) -> Harness:
    """Build the harness for a conversation. Raises InvalidError for an unknown provider."""
    if session.provider is None:
        raise InvalidError(f"session {session.id} names no provider", hint="name one with --provider")
    return harness_for(session.provider)(
        HarnessConfig(
            cwd=options.cwd or Path(session.cwd),
            # Unique and the same at every try: a creation whose answer was lost is found by its title (6.2.1).
            title=f"{session.title} · {session.id[-8:]}",
            state_dir=options.state_dir / "engines" / session.id.replace(":", "_").replace("/", "_"),
            thread=thread,
            model=options.model or session.model,
            endpoint=options.endpoint,
            permissions=options.permissions,
            own_requests=own,
            env=env,
            adopt_any=adopt_any,
        )
    )
