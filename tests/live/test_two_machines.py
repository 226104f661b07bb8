"""Two machines, one team ledger: who drives is known everywhere, and a machine that dies is replaced by its lease."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import postgres_server
from tests.live.cli import Cli, begun, engine_of, events, kill_group, observed, session_of, until
from tests.live.programs import PROVIDERS, command_line
from turnlog import EventKind
from turnlog.testing.stub_llm import StubLlm

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

LEASE_MS = 9_000


@pytest.fixture(scope="module")
def stub() -> Iterator[StubLlm]:
    with StubLlm() as running:
        yield running


def machine(cli: Cli, name: str, url: str) -> Cli:
    """The same agent's files, as where they are synchronised between machines; turnlog's own are apart."""
    other = copy.copy(cli)
    other.url = url
    state = cli.root / f"state-{name}"
    state.mkdir()
    own = {"TURNLOG_LEDGER": url, "TURNLOG_MACHINE": name, "XDG_STATE_HOME": str(state)}
    other.env = {**cli.env, **own, "TURNLOG_LEASE": str(LEASE_MS / 1000)}
    return other


@pytest.fixture
def url() -> str:
    return postgres_server.PostgresSetup(postgres_server.shared()).url()


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_machine_that_dies_is_replaced_by_its_lease(stub: StubLlm, tmp_path: Path, url: str, provider: str) -> None:
    stub.reset()  # what an earlier test asked is nothing to wait for
    home = command_line(provider, tmp_path, stub)
    alpha, beta = machine(home, "alpha", url), machine(home, "beta", url)
    running = alpha.start(
        "run", "--provider", provider, "--permissions", "allow", "[[stub: slow n=9000 delay=0.1]] first"
    )
    session = session_of(alpha)
    begun(alpha, session)

    error = beta("resume", session, "[[stub: text text=on]] too early", code=4)["error"]
    assert error["code"] == "driven"
    assert "is driven by another turnlog on machine alpha, host " in error["message"]
    assert "--replace" in error["hint"]

    with alpha.ledger() as ledger:
        ages = [0]

        def renewed() -> bool:
            ages.append(ledger.driver_age(session) or 0)
            return sum(later < age for age, later in itertools.pairwise(ages)) > 3

        until(renewed, "a driver that works renews its lease")
        assert max(ages) < LEASE_MS
        driver = ledger.driver(session)
    assert beta("resume", session, "[[stub: text text=on]] still too early", code=4)["error"]["code"] == "driven"

    engine = engine_of(alpha, session)
    running.kill()
    kill_group(engine)
    with beta.ledger() as ledger:
        until(lambda: (ledger.driver_age(session) or 0) >= LEASE_MS, "the end of the lease")
    went_on = beta.resume(session, "[[stub: text text=on]] second", "--permissions", "allow")
    assert (went_on["status"], went_on["answer"]) == ("completed", "on")
    asked = [entry["mode"] for entry in stub.log() if "early" in str(entry["user"])]
    assert asked == [], "a command that was refused has sent nothing"

    rows = events(beta, session)
    starts = [event for event in rows if event.kind is EventKind.STARTED]
    assert len(starts) == 2
    assert driver is not None
    assert starts[0].exec_id == driver.exec_id, "the first turn stays alpha's"
    assert starts[1].exec_id != driver.exec_id
    [expiry] = observed(beta, session, "lease:")
    assert expiry.payload["evidence"]["exec_id"] == driver.exec_id
    assert observed(beta, session, "death:") == []
    beta.recover_changes_nothing(session)
    assert alpha.resume(session, "[[stub: text text=back]] third", "--permissions", "allow")["answer"] == "back"
    sent = [event.payload["text"] for event in events(alpha, session) if event.kind is EventKind.REQUESTED]
    assert [text.split()[-1] for text in sent] == ["first", "second", "third"]
    slow = [entry for entry in stub.log() if entry["mode"] == "slow" and "first" in str(entry["user"])]
    assert len(slow) <= 1, "nothing was sent twice"
