"""Looks at many sources at once: processes that take the next source whenever they are free, and add up what they saw.

They are forked, because a fresh interpreter takes longer to start than most histories to look through. Where that is
not possible, or other threads run (a fork would inherit their locks), one process does it all.

Which calls can be added up where they were seen is settled between them: each tells this process the hashes of its
calls' names, this one tells each which of them somebody else has as well, and only those are handed over one by one.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from importlib import import_module
from typing import BinaryIO, Final

import msgspec

from turnlog.errors import TurnlogError
from turnlog.harness.quick import Look, QuickLook
from turnlog.harness.reading import Find, Source, Trouble
from turnlog.intake.scan_sums import Part, Sheaf
from turnlog.usage.prices import Book

PARALLEL: Final = 8 << 20
"""Bytes from which on another process is worth its start."""

MOST: Final = 8
"""Most processes: then the disk is what is waited for."""

_TICKETS: Final = 12_000
"""Most tickets in the queue: what a pipe holds before anybody reads it (64 KiB), in tickets of 4 bytes."""

_SIZE: Final = 8

_Answer = tuple[list[tuple[int, Look]], Part]
_decoder: Final = msgspec.msgpack.Decoder(_Answer)

Asked = Callable[[], Book | None]
"""Gives the price data, or None where there is none."""


class _Worker:
    """What one process has looked at."""

    def __init__(self, sources: Sequence[Source], find: Find) -> None:
        self._sources = sources
        self._find = find
        self._quick: dict[str, QuickLook] = {}
        self._sheaf = Sheaf()
        self.looks: dict[int, Look] = {}

    def work(self, numbers: Iterable[int]) -> None:
        """Look at sources, and keep their calls for ``part``."""
        for number in numbers:
            source = self._sources[number]
            provider = source.provider
            if provider not in self._quick:
                module = import_module(f"turnlog.harness.{provider}.quick")
                self._quick[provider] = module.Quick(self._find)
            try:
                look = self._quick[provider].look(source)
            except (OSError, TurnlogError) as error:
                reason = error.strerror if isinstance(error, OSError) else error.message
                look = Look(troubles=[Trouble("unreadable_source", 0, 0, reason or type(error).__name__)])
            self._sheaf.take(provider, look.calls)
            look.calls = []
            self.looks[number] = look

    def marks(self) -> array[int]:
        """Return the hashes of the calls' names: equal in all processes that were forked from one."""
        return self._sheaf.marks()

    def part(self, shared: Collection[int], book: Book | None) -> Part:
        """Add up. ``shared`` are marks of calls that other processes have seen too. To be asked once."""
        return self._sheaf.part(shared, book)


class _Child:
    """Another process, as this one sees it."""

    def __init__(self, pid: int, answer: BinaryIO, question: BinaryIO) -> None:
        self.pid = pid
        self._answer = answer
        self._question = question
        self.numbers: set[int] = set()

    def marks(self) -> array[int] | None:
        """Wait until it has looked at its last source; None where it did not live to tell."""
        numbers, marks = _received(self._answer, "I"), _received(self._answer, "q")
        if numbers is None or marks is None:
            return None
        self.numbers.update(numbers)
        return marks

    def ask(self, shared: array[int]) -> None:
        """Say which of its calls others have as well."""
        with contextlib.suppress(BrokenPipeError):
            _send(self._question, shared)

    def answer(self) -> _Answer | None:
        """Return what it saw, or None."""
        try:
            return _decoder.decode(self._answer.read())
        except msgspec.DecodeError:
            return None

    def end(self) -> None:
        """End it, if it has not ended. It has nothing that could be left half-done."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self._answer.close()
        with contextlib.suppress(BrokenPipeError):
            self._question.close()


class Crew:
    """Processes at work on sources: the others from the beginning, this one when it is asked to ``finish``.

    The biggest sources come first, so that nobody is left with one at the end.
    """

    def __init__(
        self, sources: Sequence[Source], sizes: Sequence[int], find: Find, prices: Asked | None, jobs: int | None
    ) -> None:
        self._sources, self._find, self._prices = sources, find, prices
        self._book: Book | None = None
        order = sorted(range(len(sources)), key=lambda number: -sizes[number])
        step = max(-(-len(order) // _TICKETS), 1)
        self._batches = [order[at : at + step] for at in range(0, len(order), step)]
        self._queue, tickets = os.pipe()
        with open(tickets, "wb") as all_tickets:  # noqa: PTH123 - a descriptor
            all_tickets.write(b"".join(number.to_bytes(4, "little") for number in range(len(self._batches))))
        self._children: list[_Child] = []
        count = min(jobs or len(_processors()), MOST, len(sources))
        if sum(sizes) < PARALLEL or threading.active_count() > 1 or not hasattr(os, "fork"):
            return
        for _ in range(count - 1):
            child = self._fork()
            if child is None:
                break
            self._children.append(child)

    @property
    def book(self) -> Book | None:
        """The price data, opened when it is first asked for, in each process."""
        if self._prices is not None:
            self._book, self._prices = self._prices(), None
        return self._book

    def finish(self) -> tuple[list[Look], list[Part]]:
        """Help until all is looked at; return what each source gave, in their order, and the sums. To be asked once.

        A process that dies costs nothing but time: this one does again what that did not hand in.
        """
        own = self._worker()
        own.work(self._taken())
        living = [(child, marks) for child in self._children if (marks := child.marks()) is not None]
        own.work(self._left(own.looks.keys(), *(child.numbers for child, _ in living)))
        marks = own.marks()
        shared = _in_several([marks, *(each for _, each in living)])
        for child, each in living:
            child.ask(array("q", shared.intersection(each)))
        parts = [own.part(shared, self.book)]
        looks = own.looks
        for child, _ in living:
            answer = child.answer()
            if answer is not None:
                looks.update(answer[0])
                parts.append(answer[1])
        left = self._left(looks.keys())
        if left:
            again = self._worker()
            again.work(left)
            parts.append(again.part(shared, self.book))
            looks.update(again.looks)
        return [looks[number] for number in range(len(self._sources))], parts

    def close(self) -> None:
        """End what still runs; idempotent."""
        for child in self._children:
            child.end()
        self._children = []
        if self._queue >= 0:
            os.close(self._queue)
            self._queue = -1

    def _worker(self) -> _Worker:
        return _Worker(self._sources, self._find)

    def _left(self, *done: Collection[int]) -> list[int]:
        return sorted(set(range(len(self._sources))).difference(*done))

    def _taken(self) -> Iterator[int]:
        """Yield the numbers of the batches that this process draws. A read of a ticket is atomic."""
        while ticket := os.read(self._queue, 4):
            yield from self._batches[int.from_bytes(ticket, "little")]

    def _fork(self) -> _Child | None:
        ours, theirs = os.pipe()
        their_question, our_question = os.pipe()
        try:
            pid = os.fork()
        except OSError:  # no more processes for this user: then with those that there are
            for each in (ours, theirs, their_question, our_question):
                os.close(each)
            return None
        if pid:
            os.close(theirs)
            os.close(their_question)
            return _Child(pid, open(ours, "rb"), open(our_question, "wb"))  # noqa: PTH123 - descriptors
        code = 1
        try:
            os.close(ours)
            os.close(our_question)
            with open(theirs, "wb") as answer, open(their_question, "rb") as question:  # noqa: PTH123
                self._serve(answer, question)
            code = 0
        finally:
            # Nothing of the parent's may run twice: no exit handlers, no buffers.
            os._exit(code)

    def _serve(self, answer: BinaryIO, question: BinaryIO) -> None:
        worker = self._worker()
        worker.work(self._taken())
        _send(answer, array("I", worker.looks))
        _send(answer, worker.marks())
        shared = _received(question, "q")
        if shared is not None:
            part = worker.part(frozenset(shared), self.book)
            answer.write(msgspec.msgpack.encode((list(worker.looks.items()), part)))


def _send(pipe: BinaryIO, values: array[int]) -> None:
    data = values.tobytes()
    pipe.write(len(data).to_bytes(_SIZE, "little") + data)
    pipe.flush()


def _received(pipe: BinaryIO, kind: str) -> array[int] | None:
    """Return what was sent; None when the other end was closed before it was all there."""
    head = pipe.read(_SIZE)
    size = int.from_bytes(head, "little")
    data = pipe.read(size)
    if len(head) < _SIZE or len(data) < size:
        return None
    values: array[int] = array(kind)
    values.frombytes(data)
    return values


def _in_several(several: Sequence[array[int]]) -> set[int]:
    """Return the marks that more than one has; each has a mark once."""
    if len(several) == 2:  # noqa: PLR2004 - two processors, mostly
        return set(several[0]).intersection(several[1])
    counts = Counter(mark for each in several for mark in each) if len(several) > 1 else Counter[int]()
    return {mark for mark, count in counts.items() if count > 1}


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
