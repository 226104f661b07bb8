"""Looks at many sources at once: processes that take the next source whenever they are free.

They are forked, because a fresh interpreter takes longer to start than most histories to look through. Where that is
not possible, or other threads run (a fork would inherit their locks), one process does it all.
"""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Final

import msgspec

from turnlog.errors import TurnlogError
from turnlog.harness.quick import Look, QuickLook
from turnlog.harness.reading import Find, Source, Trouble

PARALLEL: Final = 8 << 20
"""Bytes from which on another process is worth its start."""

MOST: Final = 8
"""Most processes: then the disk is what is waited for."""

_TICKETS: Final = 12_000
"""Most tickets in the queue: what a pipe holds before anybody reads it (64 KiB), in tickets of 4 bytes."""

_decoder: Final = msgspec.msgpack.Decoder(list[tuple[int, Look]])
Each = Callable[[str, Look], None]


def look_at_all(sources: Sequence[Source], find: Find, *, jobs: int | None, each: Each) -> list[Look]:
    """Look at every source; returns what each gave, in their order. ``each`` sees what this process looked at.

    The biggest come first, so that nobody is left with one at the end. A process that dies costs nothing but time: this
    one does again what that did not hand in.
    """
    sizes = [_size(source) for source in sources]
    order = sorted(range(len(sources)), key=lambda number: -sizes[number])
    count = min(jobs or len(_processors()), MOST, len(sources))
    if count < 2 or sum(sizes) < PARALLEL or threading.active_count() > 1 or not hasattr(os, "fork"):  # noqa: PLR2004
        with uncollected():
            done = dict(_work(iter(order), sources, find, each))
        return [done[number] for number in range(len(sources))]
    done = _shared(order, sources, find, count, each)
    missing = [number for number in order if number not in done]
    done.update(_work(iter(missing), sources, find, each))
    return [done[number] for number in range(len(sources))]


def _shared(order: Sequence[int], sources: Sequence[Source], find: Find, count: int, each: Each) -> dict[int, Look]:
    step = -(-len(order) // _TICKETS)
    batches = [order[at : at + step] for at in range(0, len(order), step)]
    queue, tickets = os.pipe()
    os.write(tickets, b"".join(number.to_bytes(4, "little") for number in range(len(batches))))
    os.close(tickets)
    children: list[tuple[int, int]] = []
    done: dict[int, Look] = {}
    try:
        with uncollected():
            children += (_child(queue, batches, sources, find) for _ in range(count - 1))
            done.update(_work(_taken(queue, batches), sources, find, each))
            for _, pipe in children:
                with open(pipe, "rb", closefd=False) as answer:
                    data = answer.read()
                with contextlib.suppress(msgspec.DecodeError):
                    done.update(_decoder.decode(data))
    finally:
        os.close(queue)
        for pid, pipe in children:
            os.close(pipe)
            os.waitpid(pid, 0)
    return done


def _child(queue: int, batches: Sequence[Sequence[int]], sources: Sequence[Source], find: Find) -> tuple[int, int]:
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid:
        os.close(theirs)
        return pid, ours
    code = 1
    try:
        os.close(ours)
        found = list(_work(_taken(queue, batches), sources, find, _nothing))
        with open(theirs, "wb") as answer:  # noqa: PTH123 - a descriptor
            answer.write(msgspec.msgpack.encode(found))
        code = 0
    finally:
        # Nothing of the parent's may run twice: no exit handlers, no buffers.
        os._exit(code)


def _taken(queue: int, batches: Sequence[Sequence[int]]) -> Iterator[int]:
    """Yield the numbers of the batches that this process draws. A read of a ticket is atomic."""
    while ticket := os.read(queue, 4):
        yield from batches[int.from_bytes(ticket, "little")]


def _work(numbers: Iterator[int], sources: Sequence[Source], find: Find, each: Each) -> Iterator[tuple[int, Look]]:
    quick: dict[str, QuickLook] = {}
    for number in numbers:
        source = sources[number]
        provider = source.provider
        if provider not in quick:
            quick[provider] = import_module(f"turnlog.harness.{provider}.quick").Quick(find)
        try:
            look = quick[provider].look(source)
        except (OSError, TurnlogError) as error:
            reason = error.strerror if isinstance(error, OSError) else error.message
            look = Look(troubles=[Trouble("unreadable_source", 0, 0, reason or type(error).__name__)])
        each(provider, look)
        yield number, look


def _nothing(_provider: str, _look: Look) -> None:
    """Another process sees what this one looked at."""


def _size(source: Source) -> int:
    try:
        return os.stat(source.path).st_size  # noqa: PTH116 - called for thousands of files
    except OSError:
        return 0


def _processors() -> Sequence[int]:
    if hasattr(os, "sched_getaffinity"):
        return tuple(os.sched_getaffinity(0))
    return range(os.cpu_count() or 1)


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Make no garbage collection: there are many objects and no circles."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
