"""The user's own folders: those that platformdirs names, whatever the environment says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final, Literal, get_args

import platformdirs
import pytest

from turnlog.config import own_folder

Kind = Literal["config", "data", "state", "cache"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)


@pytest.mark.parametrize("told", [None, "", " ", "/elsewhere", "/else where/", "relative", "~/own"])
@pytest.mark.parametrize("home", [None, "", "/", "/home/somebody", "/home/somebody/", "relative"])
def test_a_folder_is_where_the_platform_wants_it(
    monkeypatch: pytest.MonkeyPatch, told: str | None, home: str | None
) -> None:
    for name, value in (*((f"XDG_{kind.upper()}_HOME", told) for kind in KINDS), ("HOME", home)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    for kind in KINDS:
        assert own_folder(kind) == Path(getattr(platformdirs, f"user_{kind}_dir")("turnlog"))


def test_an_ordinary_environment_needs_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    for kind in KINDS:
        monkeypatch.delenv(f"XDG_{kind.upper()}_HOME", raising=False)
    assert [str(own_folder(kind)) for kind in KINDS] == [
        f"/home/somebody/{below}/turnlog" for below in (".config", ".local/share", ".local/state", ".cache")
    ]
