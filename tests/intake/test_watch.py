"""Waiting for changes below folders, of which some come later."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from turnlog.intake.watch import RESCAN_MS, changes

SOON_S = RESCAN_MS / 1000 / 2


def test_a_folder_that_comes_later_is_seen_long_before_everything_is_looked_at_again(tmp_path: Path) -> None:
    there, later = tmp_path / "there", tmp_path / "later" / "projects"
    there.mkdir()
    stop = threading.Event()
    followed = changes([there, later], stop)
    next(followed)
    next(followed)  # the look that sees what changed before notifications began
    later.mkdir(parents=True)
    began = time.monotonic()
    next(followed)
    assert time.monotonic() - began < SOON_S
    next(followed)  # and so is what happens in it
    (later / "one.jsonl").write_text("{}", encoding="utf-8")
    next(followed)
    assert time.monotonic() - began < SOON_S
    stop.set()


def test_the_first_folder_of_all_is_seen_soon(tmp_path: Path) -> None:
    later, stop = tmp_path / "later", threading.Event()
    followed = changes([later], stop)
    next(followed)
    later.mkdir()
    began = time.monotonic()
    next(followed)
    assert time.monotonic() - began < SOON_S
    stop.set()


def test_a_folder_that_was_made_anew_is_watched_again(tmp_path: Path) -> None:
    place, stop = tmp_path / "place", threading.Event()
    place.mkdir()
    followed = changes([place], stop)
    next(followed)
    next(followed)
    began = time.monotonic()
    place.rmdir()
    next(followed)
    place.mkdir()
    (place / "one.jsonl").write_text("{}", encoding="utf-8")
    next(followed)
    assert time.monotonic() - began < SOON_S
    stop.set()


@pytest.mark.parametrize("count", [0, 2])
def test_stopping_ends_it(tmp_path: Path, count: int) -> None:
    places = [tmp_path / str(number) for number in range(count)]
    for place in places:
        place.mkdir()
    stop = threading.Event()
    followed = changes(places, stop)
    next(followed)
    stop.set()
    assert list(followed) == []
