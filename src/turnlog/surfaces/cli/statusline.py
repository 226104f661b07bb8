"""``turnlog usage statusline``: one line for a program's status bar.

Programs ask for it several times a second, and often at once. So it reads one small file, whose content somebody else
computed: who finds it old, and gets the lock at once, starts a process of its own for that and does not wait for it.
Nothing here may import more than it must; the ledger is not opened.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Final, TypeGuard

from turnlog.surfaces.cli.context import Cli
from turnlog.surfaces.cli.words import dollars, number, one_line

REFRESH_S: Final = 15
"""How old what is shown may be, and how often it is tried to do better."""

_HOOK_WAIT_S: Final = 0.03
_HOOK_MOST: Final = 1 << 20
_MINUTES: Final = ((10_080, "7d"), (1_440, "1d"), (300, "5h"), (60, "1h"))
_NOTHING: Final = "turnlog: no usage known yet"

Facts = dict[str, Any]


def statusline(cli: Cli) -> int:
    """Print today's usage, this session's and the last known rate limits; a program's hook JSON may come on stdin.

    What is shown is at most some seconds old; a sum that may lack something shows ≥. Always exits 0: a status bar has
    no room for errors.

    Example: turnlog usage statusline
    """
    hook = _hook()
    path = place(cli.options.ledger)
    row = read(path)
    session = hook.get("session_id")
    session = session if isinstance(session, str) and session else None
    if _is_old(row, session):
        _start_refresh(path, session, cli.options.ledger)
    shown = _shown(row, hook, session)
    if cli.json:
        from turnlog.surfaces.cli.output import print_object

        print_object(**shown)
    else:
        print(_line(shown) or _NOTHING)
    return 0


def place(ledger: str | None) -> Path:
    """Return the file that holds what is shown of a ledger: in the user's cache folder, one for each way to name it."""
    from hashlib import sha256

    named = [ledger or os.environ.get("TURNLOG_LEDGER", ""), os.environ.get("TURNLOG_CALLER", "")]
    if named[0] and ":////" not in named[0]:
        named.append(str(Path.cwd()))  # a relative URL means something else elsewhere
    named += [os.environ.get(name, "") for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "TZ")]
    folder = os.environ.get("XDG_CACHE_HOME") or (
        Path("~/Library/Caches" if sys.platform == "darwin" else "~/.cache").expanduser()
    )
    return Path(folder, "turnlog", f"statusline-{sha256(repr(named).encode()).hexdigest()[:16]}.json")


def read(path: Path) -> Facts | None:
    """Return what was computed last; None when there is nothing, or nothing that can be used."""
    try:
        row = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    usable = isinstance(row, dict) and isinstance(row.get("at"), int) and isinstance(row.get("sessions"), dict)
    return row if usable else None


def claim(path: Path) -> int | None:
    """Return a descriptor that holds the lock of a refresh, for a process started to make one; None = not now.

    Not now: another one is at work, or one was tried a moment ago, whatever became of it.
    """
    import fcntl

    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        tried = os.fstat(descriptor)
        if not tried.st_size or abs(time.time() - tried.st_mtime) >= REFRESH_S:
            os.pwrite(descriptor, b"1", 0)  # the file's time is that of the try
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def _is_old(row: Facts | None, session: str | None) -> bool:
    if row is None or row.get("day") != time.strftime("%Y-%m-%d"):
        return True
    return abs(time.time() * 1000 - row["at"]) >= REFRESH_S * 1000 or session not in {None, *row["sessions"]}


def _start_refresh(path: Path, session: str | None, ledger: str | None) -> None:
    """Start a process that computes the row anew, if nobody does; it has the lock until it ends."""
    descriptor = claim(path)
    if descriptor is None:
        return
    # -P: the working directory is no place to import from.
    argv = [sys.executable, "-P", "-m", "turnlog.surfaces.cli.statusline_refresh", str(path), session or ""]
    if ledger is not None:
        argv.append(ledger)
    try:
        os.set_inheritable(descriptor, True)
        nowhere = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
        try:
            os.posix_spawn(sys.executable, argv, os.environ, file_actions=nowhere, setsid=True)
        except NotImplementedError:
            os.posix_spawn(sys.executable, argv, os.environ, file_actions=nowhere, setpgroup=0)
    except OSError:
        pass  # too many processes, say: then what is known stays for now
    finally:
        os.close(descriptor)


def _hook() -> Facts:
    """Return the JSON object on stdin; empty without one. A stdin that stays open does not hold anybody up."""
    import select

    try:
        descriptor = sys.stdin.fileno()
        if os.isatty(descriptor):
            return {}
        text, deadline = b"", time.monotonic() + _HOOK_WAIT_S
        while len(text) < _HOOK_MOST and select.select([descriptor], [], [], max(deadline - time.monotonic(), 0))[0]:
            piece = os.read(descriptor, 1 << 16)
            text += piece
            if not piece or text.rstrip().endswith(b"}"):
                value = _object(text)
                if value or not piece:
                    return value
        return _object(text)
    except (OSError, ValueError, AttributeError):
        return {}


def _object(text: bytes) -> Facts:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _shown(row: Facts | None, hook: Facts, session: str | None) -> Facts:
    """Return what can be said: what is known of another day is nothing of today."""
    known: Facts = row or {}
    cost = hook.get("cost")
    said = cost.get("total_cost_usd") if isinstance(cost, dict) else None
    mine = known["sessions"].get(session) if session and known else None
    if _is_number(said):  # the program's own figure is the newest there is
        mine = {**(mine or {}), "reported_usd": float(said), "estimated_usd": None, "cost_low": False}
    limits = [each for each in known.get("limits", []) if isinstance(each, dict)]
    own = _hook_limits(hook)
    if own:
        limits = [own, *(each for each in limits if each.get("provider") != own["provider"])]
    return {
        "at": known.get("at"),
        "day": known.get("day"),
        "timezone": known.get("timezone"),
        "today": known.get("today") if known.get("day") == time.strftime("%Y-%m-%d") else None,
        "session": mine,
        "limits": limits,
    }


def _hook_limits(hook: Facts) -> Facts | None:
    told = hook.get("rate_limits")
    windows = []
    for name, minutes in (("five_hour", 300), ("seven_day", 10_080)):
        window = told.get(name) if isinstance(told, dict) else None
        if isinstance(window, dict) and _is_number(used := window.get("used_percentage")):
            reset = window.get("resets_at")
            resets_at = int(reset * 1000) if _is_number(reset) else None
            windows.append({"used_percent": float(used), "window_minutes": minutes, "resets_at": resets_at})
    return {"provider": "claude", "at": int(time.time() * 1000), "windows": windows} if windows else None


def _line(shown: Facts) -> str:
    parts = [f"{name} {text}" for name in ("today", "session") if (text := _sum(shown[name]))]
    return " · ".join([*parts, *(text for each in shown["limits"] if (text := _limit(each)))])


def _sum(sums: Facts | None) -> str:
    if not sums:
        return ""
    words = []
    if sums.get("tokens") is not None:
        words.append(f"{number(sums['tokens'], low=bool(sums.get('low')), compact=True)} tokens")
    low = bool(sums.get("cost_low"))
    if sums.get("reported_usd") is not None:
        words.append(dollars(sums["reported_usd"], low=low))
    if sums.get("estimated_usd") is not None:
        words.append(f"{dollars(sums['estimated_usd'], low=low)} est")
    elif sums.get("unpriced_calls") and sums.get("reported_usd") is None:
        words.append("unpriced")
    return " ".join(words)


def _limit(limit: Facts) -> str:
    """Return how much of each window is used; of one that has begun anew since nothing is known."""
    now = time.time() * 1000
    used = []
    for window in limit.get("windows", ()):
        reset, minutes = window.get("resets_at"), window.get("window_minutes")
        if reset is None or reset > now:
            length = dict(_MINUTES).get(minutes) or (f"{minutes}m" if minutes else "")
            used.append(f"{window['used_percent']:.0f}%{'/' if length else ''}{length}")
    return f"{one_line(limit.get('provider'))} {' '.join(used)}" if used else ""


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
