"""The conformance suite on PostgreSQL."""

from pathlib import Path

import pytest

from tests import postgres_server
from tests.postgres_server import PostgresSetup
from turnlog import InvalidError, Ledger, Session
from turnlog.testing import store_suite
from turnlog.testing.store_suite import *  # noqa: F403 - the test classes
from turnlog.testing.store_suite import StoreSetup


@pytest.fixture
def suite() -> PostgresSetup:
    return PostgresSetup(postgres_server.shared())


class TestHandles(store_suite.TestHandles):  # type: ignore[no-redef]
    def test_backup_is_a_whole_ledger(
        self, suite: StoreSetup, ledger: Ledger, conversation: Session, tmp_path: Path
    ) -> None:
        """The server has tools of its own for that."""
        with pytest.raises(InvalidError) as caught:
            ledger.backup(tmp_path / "backup.db")
        assert "pg_dump" in caught.value.hint
