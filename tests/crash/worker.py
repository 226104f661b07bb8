"""Run as a child: forks workers that work on a ledger until they are killed.

A worker acknowledges each step with one line on standard output; what it has told must survive. Forking costs a
twentieth of starting Python, so many more kills fit into a minute. Nothing is open when it forks.
"""

import json
import os
import random
import sys
from typing import Any

from turnlog import Observation
from turnlog.api import open_ledger


def tell(did: str, **facts: Any) -> None:
    """Write one whole line at once."""
    os.write(1, (json.dumps({"did": did, **facts}) + "\n").encode())


def work(url: str, name: str, seed: int) -> None:
    """Do one random thing after the other."""
    chance = random.Random(seed)
    ledger = open_ledger(url)
    session = ledger.session("conversation")
    assert session is not None
    exec_id = ledger.start_exec(id=f"exec-{name}").id
    driver = ledger.claim_driver("conversation", ledger.driver("conversation"), exec_id, replace_engine=True)
    tell("execs", id=exec_id)
    tell("claim", generation=driver.generation)
    number = 0
    while True:
        number += 1
        turn = f"{name}-{number}"
        step = chance.randrange(8)
        if step == 0:
            payload = {"n": number, "by": name}
            tell("record", seq=ledger.record("conversation", "thread", turn, "usage", payload), payload=payload)
        elif step == 1:
            seq = ledger.record_turn_origin("conversation", "thread", turn, 1, exec_id)
            tell("record", seq=seq, payload={})
            done = {"status": "completed"}
            tell("record", seq=ledger.record("conversation", "thread", turn, "completed", done), payload=done)
        elif step == 2:
            numbers = list(range(chance.randint(1, 40)))
            ledger.record_many("conversation", [("thread", turn, "usage", {"n": n}) for n in numbers])
            tell("many", turn=turn, numbers=numbers)
        elif step == 3:
            payload = {"text": turn}
            seq = ledger.intend_turn("conversation", driver, "thread", turn, payload, turn=turn)
            tell("intend", seq=seq, payload=payload)
        elif step == 4:
            source = f"events.jsonl:{int(name) * 100_000 + number}"
            evidence = {"schema_version": 1, "seq": number, "observed_at": "2026-09-29T00:00:00Z", "type": "new"}
            seq = ledger.retain("conversation", Observation(session.artifact_key, source, number, evidence))
            payload = {"input_id": session.artifact_key, "source": source, "evidence": evidence}
            tell("observe", seq=seq, payload=payload)
        elif step == 5:
            driver = ledger.claim_driver("conversation", driver, exec_id, replace_engine=chance.random() < 0.5)
            tell("claim", generation=driver.generation)
        elif step == 6:
            ledger.finish_driver("conversation", driver, "failed")
            driver = ledger.claim_driver("conversation", ledger.driver("conversation"), exec_id)
            tell("claim", generation=driver.generation)
        else:
            tell("request", id=ledger.request("conversation", "steer", turn))


def main() -> None:
    """Fork a worker for each line of arguments and tell when it has ended."""
    for line in sys.stdin:
        url, name, seed = json.loads(line)
        pid = os.fork()
        if pid == 0:
            try:
                work(url, name, seed)
            finally:
                os._exit(1)
        tell("forked", pid=pid)
        os.waitpid(pid, 0)
        tell("ended")


if __name__ == "__main__":
    main()
