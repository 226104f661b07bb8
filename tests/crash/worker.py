"""Run as a child: works on a ledger and acknowledges each step on standard output, until it is killed."""

import json
import random
import sys

from turnlog import Observation
from turnlog.api import open_ledger

url, name, seed = sys.argv[1:4]
chance = random.Random(int(seed))
ledger = open_ledger(url)
session = ledger.session("conversation")
exec_id = ledger.start_exec(id=f"exec-{name}").id
driver = ledger.claim_driver("conversation", ledger.driver("conversation"), exec_id, replace_engine=True)


def say(did: str, **facts: object) -> None:
    """Acknowledge: what is told here must survive."""
    sys.stdout.write(json.dumps({"did": did, **facts}) + "\n")
    sys.stdout.flush()


say("execs", id=exec_id)
say("claim", generation=driver.generation)
number = 0
while True:
    number += 1
    turn = f"{name}-{number}"
    step = chance.randrange(8)
    if step == 0:
        payload = {"n": number, "by": name}
        say("record", seq=ledger.record("conversation", "thread", turn, "usage", payload), payload=payload)
    elif step == 1:
        seq = ledger.record_turn_origin("conversation", "thread", turn, 1, exec_id)
        say("record", seq=seq, payload={})
        done = {"status": "completed"}
        say("record", seq=ledger.record("conversation", "thread", turn, "completed", done), payload=done)
    elif step == 2:
        numbers = list(range(chance.randint(1, 40)))
        ledger.record_many("conversation", [("thread", turn, "usage", {"n": n}) for n in numbers])
        say("many", turn=turn, numbers=numbers)
    elif step == 3:
        payload = {"text": turn}
        seq = ledger.intend_turn("conversation", driver, "thread", turn, payload, turn=turn)
        say("intend", seq=seq, payload=payload)
    elif step == 4:
        source = f"events.jsonl:{int(name) * 100_000 + number}"
        evidence = {"schema_version": 1, "seq": number, "observed_at": "2026-09-29T00:00:00Z", "type": "new"}
        seq = ledger.retain("conversation", Observation(session.artifact_key, source, number, evidence))
        payload = {"input_id": session.artifact_key, "source": source, "evidence": evidence}
        say("observe", seq=seq, payload=payload)
    elif step == 5:
        driver = ledger.claim_driver("conversation", driver, exec_id, replace_engine=chance.random() < 0.5)
        say("claim", generation=driver.generation)
    elif step == 6:
        ledger.finish_driver("conversation", driver, "failed")
        driver = ledger.claim_driver("conversation", ledger.driver("conversation"), exec_id)
        say("claim", generation=driver.generation)
    else:
        say("request", id=ledger.request("conversation", "steer", turn))
