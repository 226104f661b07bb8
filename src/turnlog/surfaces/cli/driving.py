"""The event loop around a driven turn: signals become wishes to stop, nested errors come out as themselves."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import anyio

from turnlog.drive import Stop
from turnlog.errors import TurnlogError
from turnlog.surfaces.cli.words import note

T = TypeVar("T")

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SAID = (
    "interrupting the turn; once more ends its engine at once",
    "ending the engine; once more gives up",
    "giving up: the turn stays without an end until `turnlog recover`",
)


def drive_loop(work: Callable[[Stop], Awaitable[T]]) -> T:
    """Run ``work`` in an event loop.

    The first SIGINT, SIGTERM or SIGHUP asks to interrupt the turn, the second to end its engine, the third gives up
    (KeyboardInterrupt). Each is told on stderr.
    """
    return anyio.run(_run, work)


async def _run(work: Callable[[Stop], Awaitable[T]]) -> T:
    stop = Stop()
    result: list[T] = []
    failure: BaseException | None = None
    # A signal that our parent made us ignore (nohup, a shell's background job) stays ignored.
    wanted = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    with anyio.open_signal_receiver(*wanted) as signals:
        async with anyio.create_task_group() as tasks:
            scope = tasks.cancel_scope
            tasks.start_soon(_heed, signals, stop, scope)
            try:
                result.append(await work(stop))
            except Exception as error:  # noqa: BLE001 - it leaves the group below, not wrapped in another group
                failure = _leaf(error)
            scope.cancel()
    if failure is not None:
        raise failure
    if not result:
        raise KeyboardInterrupt
    return result[0]


async def _heed(signals: AsyncIterator[signal.Signals], stop: Stop, scope: anyio.CancelScope) -> None:
    count = 0
    async for _ in signals:
        note(f"\nturnlog: {_SAID[min(count, 2)]}")
        count += 1
        if count > 2:  # noqa: PLR2004
            scope.cancel()
            return
        stop()


def _leaf(error: BaseException) -> BaseException:
    """Return the one error that a group of errors is about: ours before others."""
    while isinstance(error, BaseExceptionGroup):
        error = next((e for e in error.exceptions if isinstance(e, TurnlogError)), error.exceptions[0])
    return error
