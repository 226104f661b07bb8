"""Run as a child: forks the turnlog of one machine, again and again, which drives a conversation until it is killed.

What it does is what driving does: take, intend, send under the fence, accept, record, renew, leave. Everything that
was acknowledged is told in a line on standard output. What reaches the provider is appended to a file, which is the
provider's view: it knows no fences.
"""

import json
import os
import random
import sys
import time
import traceback
from functools import partial
from typing import Any

from turnlog import Observation, StaleError, UnavailableError, process
from turnlog.api import Ledger, open_ledger
from turnlog.drive.claim import take
from turnlog.errors import DrivenError
from turnlog.model import Driver
from turnlog.testing import store_suite  # noqa: F401 - asks pytest to rewrite its parts, before one is imported
from turnlog.testing.store_suite_drivers import fenced_writes

SESSION = "conversation"
LEASE_S = 0.2
PAUSE_S = 0.01


def tell(did: str, **facts: Any) -> None:
    """Write one whole line at once."""
    os.write(1, (json.dumps({"did": did, **facts}) + "\n").encode())


class Life:
    """One process of one machine."""

    def __init__(self, url: str, machine: str, provider: str, seed: int) -> None:
        self.url = url
        self.machine = machine
        self.chance = random.Random(seed)
        self.provider = os.open(provider, os.O_WRONLY | os.O_APPEND)
        self.name = f"{machine}-{os.getpid()}"
        self.number = 0

    def live(self) -> None:
        """Drive, leave or lose, and drive again."""
        ledger = self.open()
        while True:
            try:
                driver = self.claim(ledger)
            except UnavailableError:
                # Nobody knows whether the claim was heard. A command ends here; its death tells the next one.
                os._exit(3)
            try:
                self.drive(ledger, driver)
            except StaleError:
                tell("stale", generation=driver.generation)
                self.prove_lost(ledger, driver)

    def open(self) -> Ledger:
        while True:
            try:
                return open_ledger(self.url)
            except UnavailableError:
                time.sleep(PAUSE_S)

    def claim(self, ledger: Ledger) -> Driver:
        """Take the conversation as soon as it may be taken."""
        exec_id = ledger.start_exec().id
        session = ledger.session(SESSION)
        assert session is not None
        while True:
            try:
                claim = take(ledger, session, exec_id, endpoint=None, replace=False, adoptable=True, lease_s=LEASE_S)
            except DrivenError:
                time.sleep(PAUSE_S)
            except StaleError:
                tell("raced")
            else:
                driver = claim.driver
                told = [driver.generation, driver.exec_id, driver.provider_generation, driver.provider_exec_id]
                tell("claim", driver=told, machine=self.machine)
                return driver

    def insist(self, work: Any) -> Any:
        """Do it until it is acknowledged, or the fence says no. What is done twice counts once."""
        while True:
            try:
                return work()
            except UnavailableError:
                time.sleep(PAUSE_S)

    def drive(self, ledger: Ledger, driver: Driver) -> None:
        """Some turns, then leave."""
        current = self.insist(lambda: ledger.session(SESSION))
        mark = Observation(current.artifact_key, f"seen:{driver.generation}", 1, {})
        self.insist(lambda: ledger.retain(SESSION, mark))
        for _ in range(self.chance.randint(1, 8)):
            self.turn(ledger, driver)
            if self.chance.random() < 0.5:
                self.insist(lambda: ledger.heartbeat(SESSION, driver))
                tell("renewed", generation=driver.generation)
        if self.chance.random() < 0.5:
            left = self.insist(lambda: self.leave(ledger, driver))
            tell("left", generation=left)
        else:
            self.insist(lambda: self.leave(ledger, driver, finish=True))
            tell("left", generation=driver.generation + 1)

    def leave(self, ledger: Ledger, driver: Driver, *, finish: bool = False) -> int:
        """Let go. When the answer was lost and it is asked again, the tuple tells that it was done."""
        now = ledger.driver(SESSION)
        if now is not None and now.exec_id is None and now.generation == driver.generation + 1:
            return now.generation
        if finish:
            ledger.finish_driver(SESSION, driver, "failed")
            return driver.generation + 1
        return ledger.release_driver(SESSION, driver).generation

    def turn(self, ledger: Ledger, driver: Driver) -> None:
        """Ask one turn and record what came of it."""
        self.number += 1
        request, turn = f"r-{self.name}-{self.number}", f"t-{self.name}-{self.number}"
        payload = {"text": request}
        seq = self.insist(lambda: ledger.intend_turn(SESSION, driver, "thread", request, payload))
        tell("intend", seq=seq, payload=payload, generation=driver.generation, exec=driver.exec_id)
        try:
            with ledger.driving(SESSION, driver):
                fenced = process.uptime_ms()
                os.write(self.provider, f"{request} {driver.generation}\n".encode())
                tell("sent", request=request, ms=process.uptime_ms() - fenced)
        except UnavailableError:
            tell("unsent", request=request)  # it may be sent or not; it is never sent again
            return
        if self.chance.random() < 0.5:
            self.insist(lambda: ledger.record(SESSION, "thread", turn, "started", {}))
            self.insist(lambda: ledger.accept_turn(SESSION, driver, request, turn))
        else:
            self.insist(lambda: ledger.accept_turn(SESSION, driver, request, turn))
            self.insist(lambda: ledger.record(SESSION, "thread", turn, "started", {}))
        tell("began", turn=turn, exec=driver.exec_id, provider_generation=driver.provider_generation)
        rows = [("thread", turn, "usage", {"n": n}) for n in range(self.chance.randint(1, 5))]
        self.insist(lambda: ledger.record_many(SESSION, rows))
        tell("many", turn=turn, numbers=list(range(len(rows))))
        done = {"status": "completed"}
        seq = self.insist(lambda: ledger.record(SESSION, "thread", turn, "completed", done))
        tell("record", seq=seq, payload=done)

    def prove_lost(self, ledger: Ledger, driver: Driver) -> None:
        """Try everything that needs the fence; nothing of it may succeed, now or later."""
        for number, write in enumerate(fenced_writes(ledger, driver)):
            try:
                self.insist(write)
            except StaleError:
                continue
            tell("broken", write=number, generation=driver.generation)


def main() -> None:
    """Fork a life for each line of arguments and tell when it has ended."""
    for line in sys.stdin:
        url, machine, provider, seed = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os.environ["XDG_DATA_HOME"] = f"{provider}.{machine}"
            process.boot_id = partial(str, f"{machine}:boot-{machine}:pid:[1]")  # type: ignore[assignment]
            try:
                Life(url, machine, provider, seed).live()
            except BaseException:  # noqa: BLE001 - whatever it is, the test must see it
                traceback.print_exc()
            finally:
                os._exit(1)
        tell("forked", pid=pid)
        _, status = os.waitpid(pid, 0)
        tell("ended", status=status)


if __name__ == "__main__":
    main()
