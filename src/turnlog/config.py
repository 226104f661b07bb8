"""Settings: defaults, then the user's TOML file, then a calling agent's ledger, then the environment, then flags.

File: ``config.toml`` in the user's config folder. Members: ``ledger`` (URL), ``[engine] keep`` (bool), ``[drive]
lease`` (seconds; in the environment ``TURNLOG_LEASE``).
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from turnlog.errors import InvalidError

LEASE_S: Final = 60.0
"""How long a driver on another machine may give no sign before it may be replaced, in seconds."""


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """What a command needs to know before it opens the ledger."""

    ledger: str
    state_dir: Path
    keep_engine: bool
    lease_s: float = LEASE_S


_FOLDERS: Final = {
    "config": ("XDG_CONFIG_HOME", ".config"),
    "data": ("XDG_DATA_HOME", ".local/share"),
    "state": ("XDG_STATE_HOME", ".local/state"),
    "cache": ("XDG_CACHE_HOME", ".cache"),
}


def own_folder(kind: Literal["config", "data", "state", "cache"]) -> Path:
    """Return the user's folder of turnlog for one kind of files, whether it exists or not.

    It is the one that platformdirs names. On Linux that is asked for odd settings only: loading it takes as long as a
    small report.
    """
    variable, below = _FOLDERS[kind]
    told, home = os.environ.get(variable, ""), os.environ.get("HOME", "")
    if sys.platform == "linux" and "ANDROID_ROOT" not in os.environ:
        if told.startswith("/"):
            return Path(told, "turnlog")
        if not told and home.startswith("/"):
            return Path(home, below, "turnlog")
    import platformdirs

    found: str = getattr(platformdirs, f"user_{kind}_dir")("turnlog")
    return Path(found)


def config_path() -> Path:
    """Return the path of the user's settings file."""
    return own_folder("config") / "config.toml"


def load(ledger: str | None = None, environ: Mapping[str, str] | None = None) -> Config:
    """Read the settings; ``ledger`` is the flag. Raises InvalidError for a file that is not valid."""
    env = os.environ if environ is None else environ
    settings = _read(config_path())
    keep = _section(settings, "engine").get("keep", False)
    stored = settings.get("ledger")
    if not isinstance(keep, bool) or not (stored is None or isinstance(stored, str)):
        raise InvalidError(
            f"{config_path()} has a setting of the wrong type", hint="ledger is a string, engine.keep a boolean"
        )
    if ledger is None:
        ledger = env.get("TURNLOG_LEDGER") or _callers_ledger(env) or stored
    return Config(
        ledger=f"sqlite:///{own_folder('data') / 'ledger.db'}" if ledger is None else ledger,
        state_dir=own_folder("state"),
        keep_engine=keep,
        lease_s=_lease(env.get("TURNLOG_LEASE") or _section(settings, "drive").get("lease", LEASE_S)),
    )


def _lease(given: object) -> float:
    """Return the seconds of a lease. Raises InvalidError unless it is a number of at least one."""
    try:
        seconds = float(given) if isinstance(given, int | float | str) and given is not True else math.nan
    except (ValueError, OverflowError):
        seconds = math.nan
    if not 1 <= seconds < math.inf:
        raise InvalidError(f"a lease of {given!r} is not a number of seconds, 1 or more", hint="leave it out, or 60")
    return seconds


def _callers_ledger(env: Mapping[str, str]) -> str | None:
    """Return the ledger of the conversation that an agent's command belongs to: call trees stay in one ledger (1.4)."""
    try:
        caller = msgspec.json.decode(env.get("TURNLOG_CALLER", "null"))
    except msgspec.DecodeError:
        return None
    named = caller.get("ledger") if isinstance(caller, dict) else None
    return named if isinstance(named, str) and named else None


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    # Imported where there is a file: most people have none, and status lines read the settings too.
    import tomllib

    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> InvalidError:
    return InvalidError(f"cannot read {path}: {error}", hint="mend the file or move it away")


def _section(settings: dict[str, Any], name: str) -> dict[str, Any]:
    section = settings.get(name, {})
    if not isinstance(section, dict):
        raise InvalidError(f"{config_path()}: [{name}] is not a table", hint="mend the file or move it away")
    return section
