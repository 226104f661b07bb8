"""A report's process ends at once when it is printed: everything is out before, and the exit code is the command's."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.surfaces.conftest import shell
from tests.surfaces.scenes import Scene
from turnlog.surfaces.cli.app import is_report


@pytest.mark.parametrize(
    ("words", "report"),
    [
        (["usage"], True),
        (["--json", "--ledger", "sqlite:////tmp/x.db", "usage", "daily"], True),
        (["usage", "explain", "x"], True),
        (["search", "usage"], False),
        (["import"], False),
        (["--ledger"], False),
        ([], False),
    ],
)
def test_only_reports_leave_nothing_to_be_done(words: list[str], report: bool) -> None:
    assert is_report(words) is report


def test_all_of_a_report_is_out(scene: Scene) -> None:
    done = shell("usage", "session", "--json", "--no-import")
    assert done.code == 0
    assert json.loads(done.out)["rows"]


def test_the_exit_code_is_that_of_the_command(scene: Scene) -> None:
    done = shell("usage", "nonsense", "--json", "--no-import")
    assert done.code == 2
    assert json.loads(done.out or done.err)["error"]["code"] == "invalid"


def test_a_process_in_which_others_work_waits_for_them() -> None:
    code = "import threading,time,sys; from turnlog.__main__ import main; sys.argv[1:] = ['usage', 'nonsense'];"
    code += "threading.Thread(target=lambda: (time.sleep(0.2), print('done'))).start(); main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "done\n")
