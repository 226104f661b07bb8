"""Where Claude Code's session files are, and which files of any folder are such."""

from __future__ import annotations

import operator
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from turnlog.harness.claude.course import kind_of
from turnlog.harness.claude.decode import PROVIDER
from turnlog.harness.reading import Source
from turnlog.harness.salvage import read_line

AGENT: Final = "agent-"
SUBAGENTS: Final = "subagents"

_HEAD: Final = 1 << 16
"""Bytes of a file that are looked at to tell whose it is."""

_OTHERS: Final = re.compile(r"(?:rollout-.*|history|journal|session_index|audit)\.jsonl")
"""Names of files that are no sessions of Claude's, whatever is in them."""

_RECORDS: Final = {"user", "assistant", "system", "progress", "attachment"}
_NOTES: Final = {
    *("summary", "file-history-snapshot", "queue-operation", "ai-title", "custom-title", "last-prompt", "mode"),
    *("permission-mode", "agent-name", "pr-link", "worktree-state", "bridge-session", "relocated", "cost-state"),
    *("frame-link", "turn-capsule", "atis-latch", "tools-used"),
}
_MARKS: Final = (b'"parentUuid":', b'"isSidechain":', b'"sessionId":')


def usual(variables: Mapping[str, str]) -> list[Path]:
    """Return the folders that hold Claude's projects, whether they exist or not."""
    named = [part.strip() for part in variables.get("CLAUDE_CONFIG_DIR", "").split(",") if part.strip()]
    if named:
        folders = [Path(part).expanduser() for part in named]
        return list(dict.fromkeys(each if each.name == "projects" else each / "projects" for each in folders))
    home = Path(variables.get("HOME") or Path.home())
    config = Path(variables.get("XDG_CONFIG_HOME") or home / ".config")
    found = [config / "claude" / "projects", home / ".claude" / "projects"]
    if sys.platform == "darwin":
        found.append(home / "Library" / "Application Support" / "Claude" / "local-agent-mode-sessions")
    return found


class Walk:
    """One walk below some folders. ``unlisted`` names (path, reason) of folders that could not be listed."""

    def __init__(self) -> None:
        self.unlisted: list[tuple[str, str]] = []
        self._folders: set[str] = set()
        self._given: set[str] = set()

    def sources(self, roots: Sequence[Path], *, trusted: bool) -> Iterator[Source]:
        """Yield the session files below ``roots``; a root may be a file. Paths are real ones, each once.

        ``trusted``: everything there is Claude's; else names, then the first lines decide. Linear in the entries; a
        folder is listed once, however many links lead to it.
        """
        for root in roots:
            real = os.path.realpath(root)
            if os.path.isfile(real):  # noqa: PTH113 - raises nothing
                if real.endswith(".jsonl") and real not in self._given and (trusted or self._is_session(real)):
                    self._given.add(real)
                    yield source_of(real)
            elif os.path.isdir(real):  # noqa: PTH112 - raises nothing
                yield from self._below(real, trusted=trusted)
            else:
                try:
                    os.lstat(root)
                except (FileNotFoundError, NotADirectoryError):
                    continue
                except OSError as error:
                    self.unlisted.append((str(root), error.strerror or type(error).__name__))
                else:
                    self.unlisted.append((str(root), "neither a file nor a folder"))

    def _is_session(self, path: str) -> bool:
        try:
            return is_session(path)
        except FileNotFoundError:  # removed meanwhile
            return False
        except OSError as error:
            self.unlisted.append((path, error.strerror or type(error).__name__))
            return False

    def _below(self, root: str, *, trusted: bool) -> Iterator[Source]:
        waiting = [root]
        while waiting:
            folder = waiting.pop()
            if folder in self._folders:
                continue
            self._folders.add(folder)
            try:
                with os.scandir(folder) as listing:
                    entries = sorted(listing, key=_name)
            except OSError as error:
                self.unlisted.append((folder, error.strerror or type(error).__name__))
                continue
            folders = []
            for entry in entries:
                path, name = entry.path, entry.name
                try:
                    if entry.is_symlink():
                        path = os.path.realpath(path)
                    if entry.is_dir():
                        folders.append(path)
                        continue
                    if not name.endswith(".jsonl") or not entry.is_file():
                        continue
                except OSError as error:  # a link to nowhere it may look
                    self.unlisted.append((entry.path, error.strerror or type(error).__name__))
                    continue
                if path in self._given or _OTHERS.fullmatch(name):
                    continue
                if trusted or self._is_session(path):
                    self._given.add(path)
                    yield source_of(path)
            waiting.extend(reversed(folders))


_name: Final = operator.attrgetter("name")


def source_of(path: str) -> Source:
    """Return the source of a session file. ``thread``: the session, or ``<parent>/<agent id>``, that its place says."""
    agent = agent_of(path)
    stem = _stem(path)
    if agent is None:
        return Source(PROVIDER, path, "jsonl", thread=stem)
    parent = folder_of(path)
    return Source(PROVIDER, path, "jsonl", thread=f"{parent}/{agent}" if parent else f"{AGENT}{agent}", rank=1)


def agent_of(path: str) -> str | None:
    """Return the id of the agent whose file this is by its place and name; None for a session's own file."""
    name = _stem(path)
    if name.startswith(AGENT):
        return name.removeprefix(AGENT)
    return name if f"/{SUBAGENTS}/" in path else None


def folder_of(path: str) -> str | None:
    """Return the session below whose folder an agent's file is; None for the older place beside the session's file."""
    before, mark, _ = path.rpartition(f"/{SUBAGENTS}/")
    return before.rpartition("/")[2] or None if mark else None


def _stem(path: str) -> str:
    return path.rpartition("/")[2].removesuffix(".jsonl")


def is_session(path: str) -> bool:
    """Tell from the first lines whether a file is one of Claude's sessions. Reads 64 KiB; raises OSError."""
    if _OTHERS.fullmatch(Path(path).name):
        return False
    with open(path, "rb") as file:  # noqa: PTH123 - a hundred thousand of them
        head = file.read(_HEAD)
    *lines, rest = head.split(b"\n")
    for raw in lines:
        for _, line in read_line(raw, 0)[0]:
            told = _is_record(line, Path(path).name)
            if told is not None:
                return told
    if len(head) < _HEAD:
        found = [_is_record(line, Path(path).name) for _, line in read_line(rest, 0)[0]]
        return any(found)
    return b'"payload":' not in rest[:400] and sum(mark in rest for mark in _MARKS) > 1


def _is_record(line: Mapping[str, Any], name: str) -> bool | None:
    """Tell whether a record is of Claude's shape; None when it may be anybody's."""
    kind, message = kind_of(line), line.get("message")
    if line.keys() & {"payload", "role", "systemPayload"}:
        return False
    if kind in _NOTES:
        return True
    if kind not in _RECORDS:
        return None
    if isinstance(message, dict) and "parts" in message:
        return False
    session = line.get("sessionId")
    if isinstance(session, str) and session.startswith("session-") and name == f"{session}.jsonl":
        return False  # a program whose records look alike
    if kind in {"user", "assistant"}:
        return isinstance(message, dict)
    return bool(line.keys() & {"parentUuid", "sessionId", "uuid"})
