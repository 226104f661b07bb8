"""The conformance suite on SQLite."""

from pathlib import Path

import pytest

from tests.ledger.sqlite_setup import SqliteSetup
from turnlog.testing.store_suite import *  # noqa: F403 - the test classes


@pytest.fixture
def suite(tmp_path: Path) -> SqliteSetup:
    return SqliteSetup(tmp_path)
