"""What ``doctor`` sees of the histories on disk: where they are, how long they stay, who is writing them now."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from turnlog.harness.reading import Reader, Source
    from turnlog.ledger.imports import SourceRow

KEPT_DAYS: Final = 30
"""How long Claude Code keeps transcripts when its settings do not say."""

SOON_DAYS: Final = 7
_DAY_MS: Final = 86_400_000
_INTERPRETERS: Final = frozenset({"node", "bun", "deno", "sh", "bash"})


class Place(msgspec.Struct, kw_only=True):
    """A place looked at. ``newest_at`` is when something in it last changed, unix ms; ``bytes`` as on disk."""

    path: str
    exists: bool
    files: int = 0
    bytes: int = 0
    newest_at: int | None = None


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long a program keeps what it wrote. ``setting`` names the file that says so; None = the program's own rule.

    ``next_at`` is when the oldest file may be deleted (unix ms); ``soon`` counts files that may be within a week, and
    ``soon_uncopied`` those of them that the ledger's archive does not hold in full.
    """

    days: int
    setting: str | None
    next_at: int | None
    soon: int
    soon_uncopied: int


class Trouble(msgspec.Struct, frozen=True):
    """A file or folder that cannot be read, or a setting that cannot be understood."""

    path: str
    reason: str


class Histories(msgspec.Struct, frozen=True, kw_only=True):
    """What lies on disk of one program. ``imported`` of its sources are in the ledger as far as they go now.

    ``gone`` counts sources that the ledger holds and that are on disk no more.
    """

    provider: str
    places: tuple[Place, ...]
    files: int
    bytes: int
    newest_at: int | None
    imported: int
    gone: int
    retention: Retention | None
    problems: tuple[Trouble, ...]


class Running(msgspec.Struct, frozen=True):
    """A program that may be writing its history. ``cwd`` is None where the system does not tell."""

    provider: str
    pid: int
    cwd: str | None


def histories(
    reader: Reader, variables: Mapping[str, str], known: Mapping[str, SourceRow], now: int | None = None
) -> Histories:
    """Look at one program's histories without reading them: O(files). ``known`` are the ledger's sources by path."""
    moment = int(time.time() * 1000) if now is None else now
    places = [Place(path=str(path), exists=os.path.exists(path)) for path in reader.usual(variables)]  # noqa: PTH110 - raises nothing
    problems: list[Trouble] = []
    files: list[tuple[Source, int]] = []
    imported = total = 0
    for source in reader.discover(variables, ()):
        try:
            size, modified = _measure(source)
        except OSError as error:
            problems.append(Trouble(source.path, error.strerror or str(error)))
            continue
        place = _place_of(source.path, places)
        for each in [] if place is None else [place]:
            each.files += 1
            each.bytes += size
            each.newest_at = max(modified, each.newest_at or 0)
        files.append((source, modified))
        total += size
        imported += _is_copied(source, known)
    problems += [Trouble(path, reason) for path, reason in reader.unlisted()]
    retention = None
    if reader.provider == "claude" and files:
        retention = _retention(places, files, known, problems, moment)
    here = {source.path for source, _ in files}
    return Histories(
        provider=reader.provider,
        places=tuple(places),
        files=len(files),
        bytes=total,
        newest_at=max((modified for _, modified in files), default=None),
        imported=imported,
        gone=sum(row.provider == reader.provider and row.path not in here for row in known.values()),
        retention=retention,
        problems=tuple(problems),
    )


def _measure(source: Source) -> tuple[int, int]:
    """Return bytes and the last change (unix ms). Raises OSError for what may not be read."""
    found = Path(source.path).stat()
    if stat.S_ISDIR(found.st_mode):
        sizes, newest = 0, found.st_mtime_ns
        for folder, _, names in os.walk(source.path):
            for name in names:
                with suppress(OSError):
                    each = Path(folder, name).stat()
                    sizes, newest = sizes + each.st_size, max(newest, each.st_mtime_ns)
        return sizes, newest // 1_000_000
    os.close(os.open(source.path, os.O_RDONLY | os.O_CLOEXEC))
    size, newest = found.st_size, found.st_mtime_ns
    if source.kind == "rows":
        with suppress(OSError):  # a database's newest changes lie beside it
            beside = Path(source.path + "-wal").stat()
            size, newest = size + beside.st_size, max(newest, beside.st_mtime_ns)
    return size, newest // 1_000_000


def _place_of(path: str, places: Sequence[Place]) -> Place | None:
    """Return the innermost place that a source lies in; links in its way may have been followed."""
    fitting = [
        each for each in places if any(Path(path).is_relative_to(p) for p in (each.path, os.path.realpath(each.path)))
    ]
    return max(fitting, key=lambda each: len(each.path), default=None)


def _is_copied(source: Source, known: Mapping[str, SourceRow]) -> bool:
    row = known.get(source.path)
    if row is None or not row.archived:
        return False
    if source.kind == "rows":
        return True  # only its reader can tell how far it was read
    with suppress(OSError):
        return row.size >= Path(source.path).stat().st_size
    return False


def _retention(
    places: Sequence[Place],
    files: Sequence[tuple[Source, int]],
    known: Mapping[str, SourceRow],
    problems: list[Trouble],
    now: int,
) -> Retention:
    """Claude Code deletes transcripts some days after their last change; its settings say how many."""
    days, setting = KEPT_DAYS, None
    for place in places:
        for path in _settings(Path(place.path).parent):
            try:
                value = json.loads(path.read_bytes()).get("cleanupPeriodDays")
            except FileNotFoundError:
                continue
            except (OSError, ValueError, AttributeError) as error:
                problems.append(Trouble(str(path), getattr(error, "strerror", None) or f"not understood: {error}"))
                continue
            if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
                days, setting = value, str(path)
            elif value is not None:
                problems.append(Trouble(str(path), f"cleanupPeriodDays is {value!r}, not a number of days"))
    ends = [(source, modified + days * _DAY_MS) for source, modified in files]
    soon = [source for source, end in ends if end <= now + SOON_DAYS * _DAY_MS]
    return Retention(
        days=days,
        setting=setting,
        next_at=min(end for _, end in ends),
        soon=len(soon),
        soon_uncopied=sum(not _is_copied(source, known) for source in soon),
    )


def _settings(folder: Path) -> list[Path]:
    """Return the settings of a configuration folder, what overrides last."""
    return [folder / "settings.json", folder / "settings.local.json"]


def running(providers: Sequence[str]) -> Iterator[Running]:
    """Yield the programs of these providers that run now, by pid."""
    import psutil

    for process in psutil.process_iter(["pid", "name", "cmdline", "cwd"]):
        facts: dict[str, Any] = process.info
        words = [Path(word).name.lower() for word in (facts["cmdline"] or ())[:2]]
        names = {(facts["name"] or "").lower(), *words[:1], *(words[1:] if _INTERPRETERS & set(words[:1]) else ())}
        provider = next((each for each in providers if each in names), None)
        if provider is not None and facts["pid"] != os.getpid():
            yield Running(provider, facts["pid"], facts["cwd"])
