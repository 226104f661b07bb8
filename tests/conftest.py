"""Every test, and every process that one starts, has a home of its own: nobody's own folders are read or written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

FOLDERS: Final = ("DATA", "CONFIG", "STATE", "CACHE")
"""Of the XDG base directories: turnlog's ledger, home and locks, and the programs' histories, lie in them."""

DROPPED: Final = (
    *("TURNLOG_CALLER", "TURNLOG_DEBUG", "TURNLOG_LEASE", "TURNLOG_LEDGER", "TURNLOG_MACHINE", "TURNLOG_PRICES"),
    *("CLAUDE_CONFIG_DIR", "CODEX_HOME", "OPENCODE_DB"),
)
"""Variables that lead to somebody's ledger or histories, or that an agent sets which runs the tests."""


@pytest.fixture(scope="session", autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the home of this process. Fixtures of any scope come after it."""
    folder = tmp_path_factory.mktemp("own_home")
    with pytest.MonkeyPatch.context() as patch:
        for name in DROPPED:
            patch.delenv(name, raising=False)
        patch.setenv("HOME", str(folder))
        for name in FOLDERS:
            patch.setenv(f"XDG_{name}_HOME", str(folder / name.lower()))
        yield folder
