"""Several processes at one PostgreSQL ledger: what tests/crash says of SQLite, unchanged."""

from __future__ import annotations

import pytest

from tests import postgres_server
from tests.crash import test_processes
from tests.postgres_server import PostgresSetup

pytestmark = [pytest.mark.crash, pytest.mark.timeout(120)]

test_a_request_is_taken_by_one_process = test_processes.test_a_request_is_taken_by_one_process
test_each_generation_is_won_by_exactly_one = test_processes.test_each_generation_is_won_by_exactly_one
test_two_writers_and_a_reader_that_tails = test_processes.test_two_writers_and_a_reader_that_tails


@pytest.fixture
def setup() -> PostgresSetup:
    setup = PostgresSetup(postgres_server.shared())
    with setup.open() as ledger:
        ledger.create_session(id="conversation", cwd="/f")
    return setup
