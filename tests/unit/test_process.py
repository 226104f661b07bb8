"""Process identity: boot, pid, start time; unknown is not dead."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from turnlog import process
from turnlog.process import START_TOLERANCE_MS, Liveness, ProcessIdentity, boot_id, identify, liveness

MACHINE = "0123456789abcdef"


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits for us."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as started:
        try:
            yield started
        finally:
            started.kill()


def test_this_process_is_alive() -> None:
    me = identify()
    assert me is not None
    assert me.pid == os.getpid()
    assert me.boot_id == boot_id()
    assert liveness(me.boot_id, me.pid, me.started_at) is Liveness.ALIVE


def test_boot_id_is_stable_and_has_three_parts() -> None:
    first = boot_id()
    assert first is not None
    boot_id.cache_clear()
    assert boot_id() == first
    assert len(first.split(":", 2)) == 3


def test_another_process(sleeper: subprocess.Popen[bytes]) -> None:
    found = identify(sleeper.pid)
    assert found == ProcessIdentity(boot_id(), sleeper.pid, found.started_at if found else 0)
    assert found is not None
    assert liveness(found.boot_id, found.pid, found.started_at) is Liveness.ALIVE
    sleeper.kill()
    sleeper.wait()
    assert liveness(found.boot_id, found.pid, found.started_at) is Liveness.DEAD
    assert identify(found.pid) is None


def test_a_zombie_is_dead(sleeper: subprocess.Popen[bytes]) -> None:
    found = identify(sleeper.pid)
    assert found is not None
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert psutil.Process(sleeper.pid).status() == psutil.STATUS_ZOMBIE
    assert liveness(found.boot_id, found.pid, found.started_at) is Liveness.DEAD


def test_a_pid_that_was_given_to_another_process_is_dead() -> None:
    me = identify()
    assert me is not None
    for shift in (START_TOLERANCE_MS + 1, -START_TOLERANCE_MS - 1, 3_600_000):
        assert liveness(me.boot_id, me.pid, me.started_at + shift) is Liveness.DEAD


def test_start_times_are_compared_with_tolerance() -> None:
    """R9.13: 3 s."""
    me = identify()
    assert me is not None
    for shift in (0, START_TOLERANCE_MS, -START_TOLERANCE_MS):
        assert liveness(me.boot_id, me.pid, me.started_at + shift) is Liveness.ALIVE


@pytest.mark.parametrize(
    ("recorded", "here", "expected"),
    [
        (f"{MACHINE}:boot1:pid:[1]", f"{MACHINE}:boot2:pid:[1]", Liveness.DEAD),
        (f"{MACHINE}:boot1:pid:[9]", f"{MACHINE}:boot2:pid:[1]", Liveness.DEAD),
        (f"{MACHINE}:boot1:pid:[1]", f"{MACHINE}:boot1:pid:[2]", Liveness.UNKNOWN),
        (f"{MACHINE}:boot1:pid:[1]", "fedcba9876543210:boot2:pid:[1]", Liveness.UNKNOWN),
        (":boot1:pid:[1]", ":boot2:pid:[1]", Liveness.UNKNOWN),
        ("boot1", f"{MACHINE}:boot1:pid:[1]", Liveness.UNKNOWN),
        ("", f"{MACHINE}:boot1:pid:[1]", Liveness.UNKNOWN),
        (None, f"{MACHINE}:boot1:pid:[1]", Liveness.UNKNOWN),
        (f"{MACHINE}:boot1:pid:[1]", None, Liveness.UNKNOWN),
    ],
    ids=[
        "earlier boot",
        "earlier boot, other namespace",
        "other namespace",
        "other machine",
        "unknown machine",
        "old spelling",
        "empty",
        "never recorded",
        "no boot id here",
    ],
)
def test_other_boots(
    monkeypatch: pytest.MonkeyPatch, recorded: str | None, here: str | None, expected: Liveness
) -> None:
    monkeypatch.setattr(process, "boot_id", lambda: here)
    me = identify()
    assert me is not None
    assert liveness(recorded, me.pid, me.started_at) is expected


@pytest.mark.parametrize(("pid", "started_at"), [(None, 5), (5, None), (None, None)])
def test_half_a_record_tells_nothing(pid: int | None, started_at: int | None) -> None:
    assert liveness(boot_id(), pid, started_at) is Liveness.UNKNOWN


def test_a_process_we_may_not_look_at_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int) -> psutil.Process:
        raise psutil.AccessDenied(pid)

    monkeypatch.setattr(psutil, "Process", refuse)
    assert liveness(boot_id(), os.getpid(), 1) is Liveness.UNKNOWN
    assert identify() is None


def test_no_such_process() -> None:
    assert identify(2**30) is None
    assert identify(-1) is None
    assert liveness(boot_id(), 2**30, 1) is Liveness.DEAD
