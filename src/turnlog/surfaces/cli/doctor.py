"""``turnlog doctor``: the installation, seen without changing it."""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import Any, Final

from turnlog.surfaces.cli.context import Cli
from turnlog.surfaces.cli.output import print_object
from turnlog.surfaces.cli.words import one_line

_MARKS: Final = {True: ("✓", "32"), False: ("✗", "31")}


def doctor(cli: Cli) -> int:
    """Check the installation and find agent programs; opens nothing for writing.

    Example: turnlog doctor
    """
    from turnlog.harness import PROVIDERS

    report = {
        "turnlog": _versions(),
        "config": _config(),
        "ledger": _ledger(cli),
        "agents": [_agent(name) for name in PROVIDERS],
    }
    if cli.json:
        print_object(**report)
    else:
        _page(cli, report)
    return 0


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    import apsw

    return {
        "version": version("turnlog"),
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "sqlite": apsw.sqlite_lib_version(),
    }


def _config() -> dict[str, Any]:
    from turnlog import config
    from turnlog.errors import TurnlogError

    path = config.config_path()
    try:
        config.load()
    except TurnlogError as error:
        return {"path": str(path), "exists": path.exists(), "problem": error.message, "hint": error.hint}
    return {"path": str(path), "exists": path.exists(), "problem": None, "hint": None}


def _ledger(cli: Cli) -> dict[str, Any]:
    from turnlog.api import open_ledger
    from turnlog.errors import TurnlogError

    found: dict[str, Any] = {"url": None, "path": None, "exists": False, "bytes": None, "problem": None, "hint": None}
    try:
        found["url"] = cli.url
        path = Path(cli.url.removeprefix("sqlite:///")).expanduser() if cli.url.startswith("sqlite:///") else None
        if path is not None:
            found["path"], found["exists"] = str(path.absolute()), path.exists()
            if not path.exists():
                return found  # not a problem: the first run makes it
            found["bytes"] = path.stat().st_size
        with open_ledger(cli.url, read_only=True) as ledger:
            ledger.sessions(limit=1)
    except TurnlogError as error:
        found["problem"], found["hint"] = error.message, error.hint
    except OSError as error:
        found["problem"], found["hint"] = str(error), "check the permissions"
    return found


def _agent(name: str) -> dict[str, Any]:
    import anyio

    from turnlog.errors import UnavailableError
    from turnlog.harness._process import locate, program_version

    path = None
    try:
        path = locate(name)
        return {
            "name": name,
            "path": str(path),
            "version": anyio.run(program_version, path),
            "problem": None,
            "hint": None,
        }
    except UnavailableError as error:
        return {
            "name": name,
            "path": None if path is None else str(path),
            "version": None,
            "problem": error.message,
            "hint": error.hint,
        }


def _page(cli: Cli, report: dict[str, Any]) -> None:
    own, config, ledger = report["turnlog"], report["config"], report["ledger"]
    _line(cli, True, "turnlog", f"{own['version']}, Python {own['python']}, SQLite {own['sqlite']}")
    where = config["path"] if config["exists"] else f"{config['path']} (not there: defaults)"
    _line(cli, not config["problem"], "config", where, config)
    if ledger["bytes"] is not None:
        _line(cli, not ledger["problem"], "ledger", f"{ledger['path']}, {ledger['bytes']:,} bytes", ledger)
    elif ledger["problem"]:
        _line(cli, False, "ledger", ledger["path"] or ledger["url"] or "", ledger)
    else:
        _line(cli, True, "ledger", f"{ledger['path'] or ledger['url']} (not there yet: the first run makes it)")
    for agent in report["agents"]:
        _line(
            cli, not agent["problem"], agent["name"], f"{agent['version'] or ''} {agent['path'] or ''}".strip(), agent
        )


def _line(cli: Cli, good: bool, name: str, what: str, source: dict[str, Any] | None = None) -> None:
    mark, style = _MARKS[good]
    painted = f"\x1b[{style}m{mark}\x1b[0m" if cli.color else mark
    problem = source["problem"] if source and not good else None
    print(f"{painted} {name:<10} {one_line(' · '.join(part for part in (what, problem) if part))}".rstrip())
    if problem and source and source["hint"]:
        print(f"{'':<13}hint: {one_line(source['hint'])}")
