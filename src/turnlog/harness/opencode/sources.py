"""Where OpenCode keeps conversations: its databases, its older storage folders, exported files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from turnlog.errors import UnavailableError
from turnlog.harness.opencode.database import is_opencode
from turnlog.harness.opencode.storage import is_tree
from turnlog.harness.reading import Source

PROVIDER: Final = "opencode"
_DATABASE: Final = re.compile(r"opencode.*\.db")
_EXPORT: Final = re.compile(rb'\s*\{\s*"info"\s*:\s*\{')
_HEAD: Final = 256


def data_folder(variables: Mapping[str, str]) -> Path:
    """Return the folder where OpenCode keeps its data."""
    named = variables.get("XDG_DATA_HOME")
    home = Path(variables.get("HOME") or Path.home())
    return (Path(named) if named else home / ".local" / "share") / "opencode"


def named_database(variables: Mapping[str, str]) -> Path | None:
    """Return the database that ``OPENCODE_DB`` names, relative to the data folder."""
    named = variables.get("OPENCODE_DB")
    return data_folder(variables) / named if named and named != ":memory:" else None


class Finder:
    """One search. ``unlisted`` are (path, reason) of what could not be listed. O(entries below the roots)."""

    def __init__(self) -> None:
        self.unlisted: list[tuple[str, str]] = []
        self._seen: set[str] = set()

    def usual(self, variables: Mapping[str, str]) -> Iterator[Source]:
        """Yield the sources in OpenCode's own folder."""
        folder = data_folder(variables)
        named = named_database(variables)
        if named is not None and os.path.isfile(named):  # noqa: PTH113 - raises nothing
            yield from self._source(named)
        for path in self._list(folder):
            if os.path.isfile(path) and _DATABASE.fullmatch(path.name):  # noqa: PTH113 - raises nothing
                yield from self._source(path)
        for tree in (folder / "storage", *(each / "storage" for each in self._list(folder / "project"))):
            if is_tree(tree):
                yield from self._source(tree, rank=1)

    def below(self, root: Path) -> Iterator[Source]:
        """Yield what is OpenCode's at or below a place that somebody named; links are followed, each folder once."""
        if os.path.isfile(root):  # noqa: PTH113 - raises nothing
            yield from self._file(root)
            return
        pending = [root]
        while pending:
            folder = pending.pop()
            real = os.path.realpath(folder)
            if real in self._seen:
                continue
            if is_tree(folder):
                yield from self._source(folder, rank=1)
                continue
            self._seen.add(real)
            for path in self._list(folder):
                if os.path.isdir(path):  # noqa: PTH112 - raises nothing
                    pending.append(path)
                elif path.suffix in {".db", ".json"} and os.path.isfile(path):  # noqa: PTH113 - raises nothing
                    yield from self._file(path)

    def _file(self, path: Path) -> Iterator[Source]:
        if path.suffix == ".json":
            if self._is_export(path):
                yield from self._source(path, rank=2)
        elif self._is_database(path):
            yield from self._source(path)

    def _is_export(self, path: Path) -> bool:
        try:
            with path.open("rb") as file:
                return _EXPORT.match(file.read(_HEAD)) is not None
        except OSError as error:
            self.unlisted.append((str(path), error.strerror or "cannot be read"))
            return False

    def _is_database(self, path: Path) -> bool:
        try:
            return is_opencode(path)
        except UnavailableError:
            # A name of OpenCode's: reading it says what is wrong with it.
            return _DATABASE.fullmatch(path.name) is not None

    def _source(self, path: Path, rank: int = 0) -> Iterator[Source]:
        real = os.path.realpath(path)
        if real not in self._seen:
            self._seen.add(real)
            # The path by which it was found stays: people know it, and it outlives what it points to.
            yield Source(PROVIDER, str(path.absolute()), "rows", rank=rank)

    def _list(self, folder: Path) -> list[Path]:
        try:
            return sorted(folder.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            self.unlisted.append((str(folder), error.strerror or "cannot be listed"))
            return []


def find(finder: Finder, variables: Mapping[str, str], roots: Sequence[Path]) -> Iterator[Source]:
    """Yield the sources below ``roots``, else those in OpenCode's own folder."""
    if not roots:
        yield from finder.usual(variables)
    for root in roots:
        yield from finder.below(root)
