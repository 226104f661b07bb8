"""``turnlog doctor``: the installation and the histories on disk, seen without changing anything."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from turnlog.surfaces.cli.context import Cli
from turnlog.surfaces.cli.doctor_page import page
from turnlog.surfaces.cli.output import plain, print_object

if TYPE_CHECKING:
    from turnlog.harness.reading import Reader
    from turnlog.ledger import Store
    from turnlog.ledger.imports import SourceRow

PROBLEMS_EXIT: Final = 3
_PASSWORD: Final = re.compile(
    r"""\"(?:--ledger=)?postgres(?:ql)?://(?:[^\s/@:\"]*:[^\s@\"]+@|[^\s\"]*[?&]password=[^\s&\"])"""
)
"""A ledger's URL among the words of a command, which are kept as JSON."""


def doctor(cli: Cli) -> int:
    """Check the installation, find agent programs and their histories; opens nothing for writing. 3 with problems.

    Example: turnlog doctor
    """
    from turnlog.intake import readers

    return examine(cli, readers())


def examine(cli: Cli, readers: Sequence[Reader]) -> int:
    """Report on the installation and on the histories that these readers find; 0, or 3 where something is wrong."""
    from turnlog.harness import PROVIDERS
    from turnlog.surfaces.cli.doctor_sources import histories, running

    known: dict[str, SourceRow] = {}
    ledger = _ledger(cli, known)
    report = {
        "turnlog": _versions(),
        "config": _config(),
        "ledger": ledger,
        "agents": [_agent(name) for name in PROVIDERS],
        "sources": [plain(histories(reader, os.environ, known)) for reader in readers],
        "running": [plain(each) for each in running([reader.provider for reader in readers])],
    }
    if cli.json:
        print_object(**report)
    else:
        page(cli, report)
    return PROBLEMS_EXIT if _problems(report) else 0


def _problems(report: dict[str, Any]) -> bool:
    """Tell whether anything is wrong. An agent that is not there is no problem, nor is a ledger that is not yet."""
    agents = any(agent["problem"] and agent["wanted"] for agent in report["agents"])
    sources = any(each["problems"] for each in report["sources"])
    return bool(report["config"]["problem"] or report["ledger"]["problem"] or agents or sources)


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


def _ledger(cli: Cli, known: dict[str, SourceRow]) -> dict[str, Any]:
    """Return what there is of the ledger, and put the sources that it holds into ``known``."""
    from turnlog.errors import OldLedgerError, TurnlogError
    from turnlog.ledger import open_store, shown

    found: dict[str, Any] = {"url": None, "path": None, "exists": False, "bytes": None, "problem": None, "hint": None}
    found["passwords"] = 0
    try:
        found["url"] = shown(cli.url)
        path = Path(cli.url.removeprefix("sqlite:///")).expanduser() if cli.url.startswith("sqlite:///") else None
        if path is not None:
            found["path"], found["exists"] = str(path.absolute()), path.exists()
            if not path.exists():
                return found  # not a problem: the first import or run makes it
            beside = path.with_name(f"{path.name}-wal")
            found["bytes"] = path.stat().st_size + (beside.stat().st_size if beside.exists() else 0)
        with closing(open_store(cli.url, read_only=True)) as store:
            known.update((row.path, row) for row in store.imports.sources())
            found["passwords"] = _passwords(store)
    except OldLedgerError:
        return found  # the next command that writes upgrades it
    except TurnlogError as error:
        found["problem"], found["hint"] = error.message, error.hint
    except OSError as error:
        found["problem"], found["hint"] = str(error), "check the permissions"
    return found


def _passwords(store: Store) -> int:
    """Return how many recorded command lines name a ledger with its password, as turnlog once wrote them down."""
    execs = store.work.execs(search="postgres", repo=None, cursor=None, limit=None)
    return sum(_PASSWORD.search(each.command or "") is not None for each in execs)


def _agent(name: str) -> dict[str, Any]:
    """Return what there is of a program. ``wanted``: it is there, or its variable names it."""
    import anyio

    from turnlog.errors import UnavailableError
    from turnlog.harness._process import locate, program_version

    path, version, problem, hint = None, None, None, None
    try:
        path = locate(name)
        version = anyio.run(program_version, path)
    except UnavailableError as error:
        problem, hint = error.message, error.hint
    wanted = path is not None or bool(os.environ.get(f"TURNLOG_{name.upper()}_BIN"))
    return {
        "name": name,
        "path": None if path is None else str(path),
        "version": version,
        "wanted": wanted,
        "problem": problem,
        "hint": hint,
    }
