"""What is the same machine, and how its name and the lease are set."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from turnlog import InvalidError, config, process


@pytest.mark.parametrize(
    ("recorded", "here", "same"),
    [
        ("m:1:a", "m:1:a", True),
        ("m:1:a", "m:2:b", True),
        ("m:1:a", "n:1:a", False),
        (":1:a", ":1:a", True),
        (":1:a", ":1:b", False),
        (":1:a", "m:1:a", False),
        (None, "m:1:a", False),
    ],
)
def test_what_is_known_to_be_the_same_machine(
    monkeypatch: pytest.MonkeyPatch, recorded: str | None, here: str, same: bool
) -> None:
    monkeypatch.setattr(process, "boot_id", lambda: here)
    assert process.same_machine(recorded) is same


def test_nothing_is_known_where_the_platform_tells_no_boot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "boot_id", lambda: None)
    assert not process.same_machine("m:1:a")


@pytest.mark.parametrize(("given", "name"), [("ci-7", "ci-7"), ("a:b c", "a-b-c"), ("x" * 80, "x" * 64)])
def test_a_machine_can_be_named(monkeypatch: pytest.MonkeyPatch, given: str, name: str) -> None:
    monkeypatch.setenv("TURNLOG_MACHINE", given)
    process.boot_id.cache_clear()
    try:
        assert process.machine_of(process.boot_id()) == name
    finally:
        monkeypatch.undo()
        process.boot_id.cache_clear()


def test_uptime_goes_on_whatever_the_clock_says(monkeypatch: pytest.MonkeyPatch) -> None:
    before = process.uptime_ms()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert 0 <= process.uptime_ms() - before < 60_000


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    monkeypatch.setattr(config, "config_path", lambda: path)
    return path


def test_the_lease_of_the_environment_is_before_that_of_the_file(settings: Path) -> None:
    assert config.load(environ={}).lease_s == 60
    settings.write_text("[drive]\nlease = 90\n")
    assert config.load(environ={}).lease_s == 90
    assert config.load(environ={"TURNLOG_LEASE": "2.5"}).lease_s == 2.5


@pytest.mark.parametrize("given", ["0", "0.5", "-1", "nan", "inf", "a minute"])
def test_a_lease_that_is_none_is_refused(settings: Path, given: str) -> None:
    with pytest.raises(InvalidError, match="lease"):
        config.load(environ={"TURNLOG_LEASE": given})


@pytest.mark.parametrize("given", ["true", "[60]", '"1h"'])
def test_a_lease_of_the_wrong_type_is_refused(settings: Path, given: str) -> None:
    settings.write_text(f"[drive]\nlease = {given}\n")
    with pytest.raises(InvalidError, match="lease"):
        config.load(environ={})
