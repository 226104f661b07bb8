"""The suite leaves the folders of whoever runs it alone."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

import turnlog
from turnlog import config
from turnlog.ledger import homes

ROOT = Path(__file__).resolve().parents[2]

PLACES = """
from turnlog import config
from turnlog.ledger import homes
print(homes.folder(), config.config_path(), config.load().state_dir, config.load().ledger.removeprefix("sqlite:///"))
"""


def test_no_folder_of_the_user_is_turnlogs_here_or_in_a_child(own_home: Path) -> None:
    told = subprocess.run([sys.executable, "-c", PLACES], capture_output=True, check=True, text=True).stdout.split()
    here = config.load()
    mine = [homes.folder(), config.config_path(), here.state_dir, Path(here.ledger.removeprefix("sqlite:///"))]
    assert [Path(each) for each in told] == mine
    assert all(each.is_relative_to(own_home) for each in mine)
    user = Path(pwd.getpwuid(os.getuid()).pw_dir)
    assert not any(each.is_relative_to(user) for each in mine) or own_home.is_relative_to(user)


def test_a_home_is_made_in_the_tests_own_folder(own_home: Path, tmp_path: Path) -> None:
    with turnlog.open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}") as ledger:
        assert ledger.start_exec().home_id is not None
    assert (own_home / "data" / "turnlog" / "home.json").is_file()


def test_a_run_of_the_suite_writes_nothing_into_the_home_of_its_user(tmp_path: Path) -> None:
    user = tmp_path / "user"
    user.mkdir()
    env = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "PYTEST_"))}
    run = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"),
            *("--basetemp", str(tmp_path / "base"), "tests/unit/test_own_home.py", "-k", "a_home_is_made"),
        ],
        cwd=ROOT,
        env={**env, "HOME": str(user), "TURNLOG_LEDGER": f"sqlite:///{user}/ledger.db", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        check=False,
        text=True,
        timeout=100,
    )
    assert (run.returncode, "1 passed" in run.stdout) == (0, True), run.stdout + run.stderr
    assert list(user.rglob("*")) == []
