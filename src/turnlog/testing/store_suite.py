"""Conformance suite of a ledger backend: what every ledger must do, told through the public API only.

A backend passes when all classes of this module pass unchanged. Give it one test module like this::

    import pytest
    from turnlog.testing.store_suite import *  # noqa: F403 - the test classes

    class Setup(StoreSetup):
        def url(self) -> str: ...
        def raw_sql(self, statement, params={}): ...
        def impatient(self) -> Ledger: ...

    @pytest.fixture
    def suite(tmp_path):
        return Setup(tmp_path)

``suite`` is a fixture of your own that returns a fresh, empty ledger's ``StoreSetup`` for each test. The classes bring
the ``ledger`` fixture (one open handle) themselves. ``raw_sql`` stands for a person who repairs the ledger with plain
SQL (semantics appendix B): statements are portable, their parameters are named ``:like_this``.

Beware with SQLite: ``raw_sql`` must not go through a second copy of the library in this process (the standard
``sqlite3`` module): its close would drop the ledger's locks. Use apsw, or a child process.
"""

from __future__ import annotations

# ruff: noqa: E402 - asserts are rewritten on import only where pytest was told so before
import pytest

# Before the modules are imported: only then do their bare asserts explain themselves.
pytest.register_assert_rewrite(
    *(
        f"turnlog.testing.store_suite_{noun}"
        for noun in (
            "base",
            "events",
            "reads",
            "origins",
            "observations",
            "sessions",
            "work",
            "planning",
            "activity",
            "drivers",
            "exits",
            "lists",
            "alone",
            "holds",
            "identity",
            "answers",
            "usage",
            "recorders",
            "requests",
            "intake",
            "handles",
            "errors",
        )
    )
)

from turnlog.testing.store_suite_activity import TestActivity
from turnlog.testing.store_suite_alone import TestAlone
from turnlog.testing.store_suite_answers import TestAnswers
from turnlog.testing.store_suite_base import StoreSetup
from turnlog.testing.store_suite_drivers import TestDrivers
from turnlog.testing.store_suite_errors import TestErrors
from turnlog.testing.store_suite_events import TestEvents
from turnlog.testing.store_suite_exits import TestExits
from turnlog.testing.store_suite_handles import TestHandles
from turnlog.testing.store_suite_holds import TestHolds
from turnlog.testing.store_suite_identity import TestIdentity
from turnlog.testing.store_suite_intake import TestIntake
from turnlog.testing.store_suite_lists import TestLists
from turnlog.testing.store_suite_observations import TestObservations
from turnlog.testing.store_suite_origins import TestOrigins
from turnlog.testing.store_suite_planning import TestPlanning
from turnlog.testing.store_suite_reads import TestReads
from turnlog.testing.store_suite_recorders import TestRecorders
from turnlog.testing.store_suite_requests import TestRequests
from turnlog.testing.store_suite_sessions import TestSessions
from turnlog.testing.store_suite_usage import TestUsage
from turnlog.testing.store_suite_work import TestWork

__all__ = [
    "StoreSetup",
    "TestActivity",
    "TestAlone",
    "TestAnswers",
    "TestDrivers",
    "TestErrors",
    "TestEvents",
    "TestExits",
    "TestHandles",
    "TestHolds",
    "TestIdentity",
    "TestIntake",
    "TestLists",
    "TestObservations",
    "TestOrigins",
    "TestPlanning",
    "TestReads",
    "TestRecorders",
    "TestRequests",
    "TestSessions",
    "TestUsage",
    "TestWork",
]
