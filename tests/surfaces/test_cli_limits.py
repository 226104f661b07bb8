"""Rate limits in words."""

from __future__ import annotations

from turnlog.queries.limits import Limit, LimitWindow
from turnlog.surfaces.cli.limits import limit_notes

NOW = 1_790_000_000_000
HOUR = 3_600_000


def test_what_was_used_of_which_window_and_until_when() -> None:
    windows = (
        LimitWindow(used_percent=58.0, window_minutes=300, resets_at=NOW + HOUR),
        LimitWindow(used_percent=42.5, window_minutes=10_080),
    )
    (line,) = limit_notes([Limit(provider="codex", at=NOW, windows=windows, plan="pro")], NOW)
    assert line == (
        "limits of codex (pro) as of 2026-09-21 14:13: 58% of 5 hours used until 2026-09-21 15:13, 42.5% of 7 days used"
    )


def test_of_a_window_that_began_anew_nothing_is_known() -> None:
    windows = (
        LimitWindow(used_percent=58.0, window_minutes=60, resets_at=NOW),
        LimitWindow(used_percent=1.0, window_minutes=61),
        LimitWindow(used_percent=0.0),
    )
    (line,) = limit_notes([Limit(provider="a\x1b[2Jb", at=NOW - HOUR, windows=windows)], NOW)
    assert line == (
        "limits of ab as of 2026-09-21 13:13: "
        "1 hour began anew 2026-09-21 14:13, 1% of 61 minutes used, 0% of a window used"
    )
