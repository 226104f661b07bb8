"""A sequence that is behind its table, as restores and replicas leave it: nothing is taken for known that is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests import postgres_server
from tests.postgres_server import PostgresSetup
from turnlog import Ledger, Observation, TurnlogError

WRITES: dict[str, Callable[[Ledger], object]] = {
    "record": lambda ledger: ledger.record("s", "t", "new", "usage", {"n": 1}),
    "start": lambda ledger: ledger.record("s", "t", "new", "started", {}),
    "record_many": lambda ledger: ledger.record_many("s", [("t", "new", "usage", {"n": n}) for n in range(3)]),
    "intend": lambda ledger: ledger.intend_turn("s", ledger.driver("s"), "t", "new", {}),  # type: ignore[arg-type]
    "retain": lambda ledger: ledger.retain("s", Observation("0" * 32, "new", 1, {})),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_receipt_is_never_lost_silently(name: str) -> None:
    setup = PostgresSetup(postgres_server.shared())
    with setup.open() as ledger:
        ledger.create_session(id="s", artifact_key="0" * 32, cwd="/f")
        ledger.claim_driver("s", None, ledger.start_exec(id="e").id)
        for number in range(5):
            ledger.record("s", "t", "1", "usage", {"n": number})
        before = len(ledger.history("s"))
        setup.raw_sql("SELECT setval(pg_get_serial_sequence('session_events', 'seq'), 1)")
        with pytest.raises(TurnlogError, match="session_events_pkey"):
            WRITES[name](ledger)
        assert len(ledger.history("s")) == before
        setup.raw_sql(
            "SELECT setval(pg_get_serial_sequence('session_events', 'seq'), (SELECT max(seq) FROM session_events))"
        )
        WRITES[name](ledger)
        assert len(ledger.history("s")) > before
        assert ledger.verify() == []
