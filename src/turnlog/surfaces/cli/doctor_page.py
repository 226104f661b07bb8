"""What ``doctor`` found, for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from turnlog.clock import from_rfc3339
from turnlog.surfaces.cli.words import UNKNOWN, local_time, one_line, plural

if TYPE_CHECKING:
    from turnlog.surfaces.cli.context import Cli

Facts = dict[str, Any]

_MARKS: Final = {"good": ("✓", "32"), "bad": ("✗", "31"), "warn": ("!", "33"), "none": ("·", "2")}
_INDENT: Final = 13
_SHOWN: Final = 10


def page(cli: Cli, report: Facts) -> None:
    """Print a report: ✓ is well, ✗ is a problem, ! is worth knowing, · is not there."""
    own, config, ledger = report["turnlog"], report["config"], report["ledger"]
    _line(cli, "good", "turnlog", f"{own['version']}, Python {own['python']}, SQLite {own['sqlite']}")
    where = config["path"] if config["exists"] else f"{config['path']} (not there: defaults)"
    _line(cli, "bad" if config["problem"] else "good", "config", where, config)
    if ledger["problem"]:
        size = f", {ledger['bytes']:,} bytes" if ledger["bytes"] is not None else ""
        _line(cli, "bad", "ledger", f"{ledger['path'] or ledger['url'] or ''}{size}", ledger)
    elif ledger["bytes"] is not None:
        _line(cli, "good", "ledger", f"{ledger['path']}, {ledger['bytes']:,} bytes")
    elif ledger["path"]:
        _line(cli, "good", "ledger", f"{ledger['path']} (not there yet: `turnlog import` or `run` makes it)")
    else:
        _line(cli, "good", "ledger", ledger["url"])
    if ledger["passwords"]:
        _line(cli, "warn", "passwords", f"of a ledger are in {plural(ledger['passwords'], 'recorded command line')}")
        _more("hint: change them; what was recorded stays, in copies and backups, too")
    for agent in report["agents"]:
        mark = "good" if not agent["problem"] else "bad" if agent["wanted"] else "none"
        _line(cli, mark, agent["name"], f"{agent['version'] or ''} {agent['path'] or ''}".strip(), agent)
    for sources in report["sources"]:
        print()
        _sources(cli, sources)
    if report["running"]:
        print()
    for program in report["running"]:
        what = f"{program['provider']} is running: pid {program['pid']} in {program['cwd'] or UNKNOWN}"
        _line(cli, "warn", "running", what)


def _sources(cli: Cli, sources: Facts) -> None:
    name, problems = sources["provider"], sources["problems"]
    if not sources["files"]:
        _line(cli, "none", "history", f"of {name}: nothing found")
    else:
        newest = local_time(from_rfc3339(sources["newest_at"]))
        what = f"of {name}: {plural(sources['files'], 'source')}, {sources['bytes']:,} bytes, last changed {newest}"
        _line(cli, "good", "history", what)
    for place in sources["places"]:
        inside = f"{plural(place['files'], 'source')}, {place['bytes']:,} bytes" if place["exists"] else "not there"
        _more(f"{one_line(place['path'])}: {inside}")
    if sources["files"] or sources["gone"]:
        gone = f"; {sources['gone']:,} gone from disk are kept" if sources["gone"] else ""
        _more(f"imported: {sources['imported']:,} of {sources['files']:,}{gone}")
    if sources["retention"]:
        _retention(cli, sources["retention"])
    for problem in problems[:_SHOWN]:
        _line(cli, "bad", "unreadable", f"{problem['path']}: {problem['reason']}")
    if len(problems) > _SHOWN:
        _more(f"and {len(problems) - _SHOWN:,} more (--json lists them)")


def _retention(cli: Cli, kept: Facts) -> None:
    said = f"cleanupPeriodDays in {one_line(kept['setting'])}" if kept["setting"] else "its default"
    _more(f"kept for {plural(kept['days'], 'day')} after the last change ({said})")
    soon = f"{plural(kept['soon'], 'file')} within 7 days"
    what = f"next deletion {local_time(from_rfc3339(kept['next_at']))}, {soon}"
    if kept["soon_uncopied"]:
        _line(cli, "warn", "deletion", f"{what}, {kept['soon_uncopied']:,} of them not copied")
        _more("hint: `turnlog import` copies them")
    else:
        _more(f"{what}{', all copied' if kept['soon'] else ''}")


def _line(cli: Cli, kind: str, name: str, what: str, source: Facts | None = None) -> None:
    mark, style = _MARKS[kind]
    painted = f"\x1b[{style}m{mark}\x1b[0m" if cli.color else mark
    problem = source["problem"] if source else None
    print(f"{painted} {name:<10} {one_line(' · '.join(part for part in (what, problem) if part))}".rstrip())
    if problem and source and source["hint"]:
        _more(f"hint: {one_line(source['hint'])}")


def _more(text: str) -> None:
    print(f"{'':<{_INDENT}}{text}")
