"""Seeded schedules of machines that fight for one conversation, and what must hold after each of them."""

from __future__ import annotations

import json
import os
import queue
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from tests.crash.machine import LEASE_S, SESSION
from tests.crash.wire import Wire
from tests.ledger.children import Child, child
from turnlog import Event, EventKind, Ledger

PROGRAM: Final = (Path(__file__).with_name("machine.py")).read_text(encoding="utf-8")
LEASE_MS: Final = int(LEASE_S * 1000)
PATIENCE_S: Final = 0.4
KILLED: Final = signal.SIGKILL.value
GAVE_UP: Final = 3 << 8


class Told(msgspec.Struct):
    """What all machines acknowledged, in the order in which it was read."""

    facts: list[dict[str, Any]]
    failed: list[str] = msgspec.field(default_factory=list)

    def of(self, *kinds: str) -> list[dict[str, Any]]:
        return [fact for fact in self.facts if fact["did"] in kinds]


class Machine:
    """One machine: a forker that lives through all schedules, and the one turnlog it runs now."""

    def __init__(self, name: str, forker: Child, heard: queue.Queue[tuple[Machine, dict[str, Any]]]) -> None:
        self.name = name
        self.forker = forker
        self.wire: Wire | None = None
        self.pid: int | None = None
        self.running = False
        self._line: list[Any] = []
        threading.Thread(target=self._listen, args=(heard,), daemon=True).start()

    def _listen(self, heard: queue.Queue[tuple[Machine, dict[str, Any]]]) -> None:
        assert self.forker.process.stdout is not None
        for line in self.forker.process.stdout:
            heard.put((self, json.loads(line)))

    def begin(self, url: str, provider: Path, seed: int) -> None:
        self._line = [url, self.name, str(provider), seed]
        self.again()

    def again(self) -> None:
        self._line[-1] += 1
        self.running = True
        self.forker.say(json.dumps(self._line))

    def signal(self, number: signal.Signals) -> None:
        if self.pid is not None:
            with suppress(ProcessLookupError):  # it has just ended by itself
                os.kill(self.pid, number)


class Arena:
    """All machines; kept for many schedules, because starting Python costs more than a schedule."""

    def __init__(self, machines: list[Machine], heard: queue.Queue[tuple[Machine, dict[str, Any]]]) -> None:
        self.machines = machines
        self._heard = heard
        self.playing: list[Machine] = []
        self.told = Told([])
        self._closing = False

    def run(self, chance: random.Random, urls: list[str], provider: Path, scenes: list[Scene], count: int) -> Told:
        """Let the machines of these URLs drive while random things happen to them; then kill all of them."""
        self.told = Told([])
        self.playing = self.machines[: len(urls)]
        self._closing = False
        for machine, url in zip(self.playing, urls, strict=True):
            machine.begin(url, provider, chance.randrange(2**31))
        try:
            for _ in range(count):
                self.let(chance.randint(2, 12))
                chance.choice(scenes)(self, self.driver() if chance.random() < 0.8 else None, chance)
            self.let(5)
        finally:
            self._end()
        assert self.told.failed == [], "a machine failed by itself"
        return self.told

    def let(self, facts: int) -> None:
        """Wait for so many acknowledgements, if they come."""
        wanted = len(self.told.facts) + facts
        self.until(lambda _: len(self.told.facts) >= wanted)

    def until(self, found: Callable[[dict[str, Any]], bool]) -> bool:
        """Listen until a fact is found, or nothing more can be expected."""
        deadline = time.monotonic() + PATIENCE_S
        while (left := deadline - time.monotonic()) > 0:
            fact = self._hear(left)
            if fact is not None and found(fact):
                return True
        return False

    def driver(self) -> Machine | None:
        """Return the machine that claimed last."""
        name = next((fact["machine"] for fact in reversed(self.told.facts) if fact["did"] == "claim"), None)
        return next((each for each in self.playing if each.name == name), None)

    def _end(self) -> None:
        self._closing = True
        for machine in self.playing:
            while machine.running and machine.pid is None:
                assert self._hear(30) is not None, f"{machine.name} does not answer"
            machine.signal(signal.SIGKILL)
        while any(machine.running for machine in self.playing):
            assert self._hear(30) is not None, "a machine does not end"

    def _hear(self, seconds: float) -> dict[str, Any] | None:
        try:
            machine, fact = self._heard.get(timeout=seconds)
        except queue.Empty:
            return None
        if fact["did"] == "forked":
            machine.pid = fact["pid"]
        elif fact["did"] == "ended":
            if fact["status"] not in {KILLED, GAVE_UP}:
                self.told.failed.append(f"{machine.name}: {fact}")
            machine.pid, machine.running = None, False
            if not self._closing:
                machine.again()
        else:
            self.told.facts.append(fact)
        return fact


Scene: TypeAlias = Callable[[Arena, Machine | None, random.Random], None]


@contextmanager
def arena(count: int) -> Iterator[Arena]:
    """Start so many machines."""
    heard: queue.Queue[tuple[Machine, dict[str, Any]]] = queue.Queue()
    with ExitStack() as stack:
        machines = [Machine(f"m{n}", stack.enter_context(child(PROGRAM)), heard) for n in range(count)]
        yield Arena(machines, heard)


# --- what may happen: to the driver, or (None) to any machine


def kill(stage: Arena, driver: Machine | None, chance: random.Random) -> None:
    (driver or chance.choice(stage.playing)).signal(signal.SIGKILL)


def stop(stage: Arena, driver: Machine | None, chance: random.Random) -> None:
    """It sleeps, mostly until its lease is over and another one drives; then it goes on where it was."""
    machine = driver or chance.choice(stage.playing)
    machine.signal(signal.SIGSTOP)
    _replaced(stage, machine, chance)
    machine.signal(signal.SIGCONT)


def cut(stage: Arena, driver: Machine | None, chance: random.Random) -> None:
    """Its connections break, at once or after they were silent for a while, and come back later."""
    machine = driver or chance.choice(stage.playing)
    assert machine.wire is not None
    for step in chance.choice([[machine.wire.cut], [machine.wire.halt], [machine.wire.deafen, machine.wire.cut]]):
        step()
        _replaced(stage, machine, chance)
    if chance.random() < 0.5:
        machine.wire.cut()  # what was on its way is lost
    machine.wire.mend()


def stop_and_cut(stage: Arena, driver: Machine | None, chance: random.Random) -> None:
    """The worst: a driver that cannot know that its connection is gone, and goes on."""
    machine = driver or chance.choice(stage.playing)
    assert machine.wire is not None
    machine.signal(signal.SIGSTOP)
    machine.wire.cut()
    _replaced(stage, machine, chance)
    machine.wire.mend()
    machine.signal(signal.SIGCONT)


def _replaced(stage: Arena, machine: Machine, chance: random.Random) -> None:
    if chance.random() < 0.8:
        stage.until(lambda fact: fact["did"] == "claim" and fact["machine"] != machine.name)
    else:
        stage.let(3)


# --- what must hold


def check(ledger: Ledger, told: Told, provider: Path) -> int:
    """Everything is checked from the ledger, against what was acknowledged. Returns the number of late sends."""
    assert ledger.verify() == []
    rows = ledger.history(SESSION)
    by_seq = {row.seq: row for row in rows}
    intents = _intents(ledger)
    _tuples(ledger, told, rows, intents)
    _receipts(told, rows, by_seq)
    _attribution(told, rows, intents)
    assert told.of("broken") == [], "a driver that had lost its tuple wrote something"
    return _sends(told, intents, provider)


def _intents(ledger: Ledger) -> list[tuple[int, str, str, int, int]]:
    """(seq, request, exec, provider generation, driver generation), in the order of commits."""
    with ledger._store._backend.read() as tx:
        names = [row[0] for row in tx.all("own_request_ids", session=SESSION, thread="thread")]
        rows = [(name, tx.one("find_requested", session=SESSION, request=name)) for name in names]
    return sorted((row[0], name, row[3], row[4], row[5]) for name, row in rows if row is not None)


def _tuples(ledger: Ledger, told: Told, rows: list[Event], intents: list[tuple[int, str, str, int, int]]) -> None:
    """One driver at any time: each generation was won by one exec, and later intents are of later generations."""
    claims: dict[int, list[Any]] = {}
    for fact in told.of("claim"):
        generation = fact["driver"][0]
        assert generation not in claims, f"generation {generation} was won twice"
        claims[generation] = fact["driver"]
    generations = [intent[4] for intent in intents]
    assert generations == sorted(generations), "an intent was committed after its driver had been replaced"
    for _, request, exec_id, provider_generation, generation in intents:
        if generation in claims:
            assert claims[generation][1] == exec_id, request
            assert claims[generation][2] == provider_generation, request
    # A later driver had been seen in the ledger: nothing of an earlier one comes after it.
    seen = {int(str(row.payload["source"]).split(":")[1]): row.seq for row in rows if _source(row, "seen:")}
    for seq, request, _, _, generation in intents:
        later = [at for number, at in seen.items() if number > generation]
        assert all(seq < at for at in later), request
    current = ledger.driver(SESSION)
    last = max([0, *claims, *generations, *(fact["generation"] for fact in told.of("left"))])
    assert (current.generation if current else 0) >= last


def _source(row: Event, begin: str) -> bool:
    return row.kind is EventKind.OBSERVED and str(row.payload.get("source", "")).startswith(begin)


def _receipts(told: Told, rows: list[Event], by_seq: dict[int, Event]) -> None:
    """Nothing that was acknowledged is lost, and nothing is there twice."""
    for fact in told.of("intend", "record"):
        assert by_seq[fact["seq"]].payload == fact["payload"], fact
    for fact in told.of("many"):
        found = [row.payload["n"] for row in rows if row.kind == "usage" and row.turn == fact["turn"]]
        assert found == fact["numbers"], fact
    keys = [
        (row.thread, row.turn if row.kind != "requested" else row.payload["text"], row.kind, json.dumps(row.payload))
        for row in rows
    ]
    assert len(keys) == len(set(keys))


def _attribution(told: Told, rows: list[Event], intents: list[tuple[int, str, str, int, int]]) -> None:
    """A turn belongs to who asked for it, whoever drives later (promise 6)."""
    asked = {row.turn: row for row in rows if row.kind is EventKind.REQUESTED and row.turn is not None}
    began = {row.turn: row for row in rows if row.kind is EventKind.STARTED}
    authors = {intent[0]: intent for intent in intents}
    for turn, row in asked.items():
        if turn in began:
            intent = authors[row.seq]
            assert (began[turn].exec_id, began[turn].provider_generation) == (intent[2], intent[3]), turn
    for fact in told.of("began"):
        start = began[fact["turn"]]
        assert (start.exec_id, start.provider_generation) == (fact["exec"], fact["provider_generation"]), fact


def _sends(told: Told, intents: list[tuple[int, str, str, int, int]], provider: Path) -> int:
    """The provider got nothing without an intent, nothing twice, and nothing of a replaced driver.

    Nobody can keep a process from sending that passed the fence and was then stopped, while its connection broke and
    its lease ran out. That is the only way; such sends are counted.
    """
    sends = [line.split() for line in provider.read_text(encoding="ascii").splitlines()]
    requests = [request for request, _ in sends]
    assert len(requests) == len(set(requests)), "something was sent twice"
    generations = {intent[1]: intent[4] for intent in intents}
    held = {fact["request"]: fact["ms"] for fact in told.of("sent")}
    late, highest = 0, 0
    for request, generation in sends:
        assert generations[request] == int(generation), f"{request} was sent without its intent"
        if int(generation) < highest:
            assert held.get(request, LEASE_MS) >= LEASE_MS, f"{request} was sent by a replaced driver"
            late += 1
        highest = max(highest, int(generation))
    return late
