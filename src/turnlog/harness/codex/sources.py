"""Where Codex keeps its rollouts: ``sessions`` by day, ``archived_sessions`` flat, old ones compressed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import orjson
import zstandard

from turnlog.harness.codex.dig import made_at, text
from turnlog.harness.reading import Source

_NAME: Final = re.compile(
    r"rollout-(?P<when>\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d)-(?P<thread>.+?)(?P<more>_[0-9a-f]{8}-[0-9a-f-]{27})?\.jsonl(?:\.zst)?"
)
_ROLLOUT: Final = re.compile(r"rollout-.*\.jsonl(?:\.zst)?")
_TYPES: Final = ("session_meta", "turn_context", "response_item", "event_msg", "token_usage_record", "compacted")
_HEAD: Final = 256 << 10
"""Bytes looked at of a file with another name: a first line holds the instructions, 20 to 40 KB."""

_PACKED: Final = 64 << 10


def home(variables: Mapping[str, str]) -> Path:
    """Return Codex's own folder: ``CODEX_HOME``, else ``~/.codex``."""
    told = variables.get("CODEX_HOME")
    return Path(told) if told else Path(variables.get("HOME") or Path.home()) / ".codex"


def usual(variables: Mapping[str, str]) -> list[Path]:
    """Return the folders that hold rollouts, whether they exist or not."""
    place = home(variables)
    return [place / "sessions", place / "archived_sessions"]


def thread_of(name: str) -> str | None:
    """Return the conversation that a file's name tells."""
    match = _NAME.fullmatch(name)
    return match["thread"] if match else None


def continues(name: str) -> bool:
    """Tell whether a file is a later part of a conversation that has another file."""
    match = _NAME.fullmatch(name)
    return match is not None and match["more"] is not None


def discover(roots: Sequence[Path], unlisted: list[tuple[str, str]], *, named: bool) -> Iterator[Source]:
    """Yield the rollouts below the roots, or that are roots. O(directory entries).

    ``named``: only files that are called rollouts; else also those whose first line is a rollout's. A file that is
    there plain and compressed is given plain. Links are followed, each folder once. ``unlisted`` gets the folders that
    could not be read.
    """
    seen: set[tuple[int, int]] = set()
    for root in roots:
        yield from _below(root.absolute(), unlisted, seen, named=named)


def _below(root: Path, unlisted: list[tuple[str, str]], seen: set[tuple[int, int]], *, named: bool) -> Iterator[Source]:
    if os.path.isfile(root):  # noqa: PTH113 - raises nothing
        source = _source(str(root), root.name, named=named)
        if source is not None:
            yield source
        return
    waiting = [str(root)]
    while waiting:
        folder = waiting.pop()
        try:
            facts = os.stat(folder)  # noqa: PTH116 - called for thousands of folders
            if (facts.st_dev, facts.st_ino) in seen:
                continue
            seen.add((facts.st_dev, facts.st_ino))
            with os.scandir(folder) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
        except FileNotFoundError:
            continue
        except OSError as error:
            unlisted.append((folder, error.strerror or "unreadable"))
            continue
        names = {entry.name for entry in listed}
        for entry in listed:
            if _folder(entry):
                waiting.append(entry.path)
            elif not (entry.name.endswith(".zst") and entry.name.removesuffix(".zst") in names):
                source = _source(entry.path, entry.name, named=named)
                if source is not None:
                    yield source


def _folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _source(path: str, name: str, *, named: bool) -> Source | None:
    kind = "zst" if name.endswith(".jsonl.zst") else "jsonl" if name.endswith(".jsonl") else None
    if kind is None or not (_ROLLOUT.fullmatch(name) or (not named and _ours(path, packed=kind == "zst"))):
        return None
    match = _NAME.fullmatch(name)
    thread = match["thread"] if match else None
    own = thread if match is not None and match["more"] is None else None
    return Source("codex", path, "zst" if kind == "zst" else "jsonl", own, _rank(match, thread))


def _rank(match: re.Match[str] | None, thread: str | None) -> int:
    """Return when a conversation began, unix ms: a parent began before its children. 0 where the name does not tell."""
    made = made_at(thread) if thread is not None else None
    if made is not None or match is None:
        return made or 0
    try:
        when = datetime.strptime(match["when"], "%Y-%m-%dT%H-%M-%S").replace(tzinfo=UTC)
    except ValueError:
        return 0
    return int(when.timestamp() * 1000)


def _ours(path: str, *, packed: bool) -> bool:
    """Tell whether a file's first line is one of a rollout."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - called for thousands of files
            head = file.read(_PACKED if packed else _HEAD)
        if packed:
            head = zstandard.ZstdDecompressor().decompressobj().decompress(head)
        line = orjson.loads(head.partition(b"\n")[0])
    except (OSError, zstandard.ZstdError, orjson.JSONDecodeError):
        return False
    if not isinstance(line, dict):
        return False
    if line.get("type") in _TYPES and isinstance(line.get("payload"), dict):
        return True
    return "type" not in line and text(line, "id") is not None and {"timestamp", "instructions"} <= line.keys()
