"""OpenCode's folders of JSON objects as a shelf, and a conversation that was exported into one file.

Two layouts: ``session/<project>/<session>.json`` with ``message/<session>/`` and ``part/<message>/`` beside it, and the
older ``session/{info,message,part}/`` with ``part/<session>/<message>/``. Objects are rewritten in place, so each is
known by the newer of its two change times. An id inside an object beats the name of its file.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import orjson

from turnlog.errors import UnavailableError
from turnlog.harness.opencode.shapes import created, info_of
from turnlog.harness.opencode.shelf import Conversation, DamagedError, Dirty, Item, Marks

SLACK_NS: Final = 2_000_000_000
"""File systems round change times; the coarsest to two seconds."""

EXPORT_LIMIT: Final = 64 << 20
"""Bytes of the largest export that is read: it is one JSON value, which is held whole."""


def is_tree(folder: Path) -> bool:
    """Tell whether a folder is one of OpenCode's storage folders."""
    message, session = folder / "message", folder / "session"
    return os.path.isdir(session / "message") or (os.path.isdir(message) and os.path.isdir(session))  # noqa: PTH112 - raises nothing


class Tree:
    """A storage folder. A look lists all of it: O(files), a few microseconds each."""

    def __init__(self, folder: Path) -> None:
        old = (folder / "session" / "message").is_dir()
        base = folder / "session" if old else folder
        self._sessions = base / "info" if old else base / "session"
        self._messages, self._parts, self._projects = base / "message", base / "part", base / "project"
        self._nested = old
        if not is_tree(folder):
            raise UnavailableError(f"{folder} is not one of OpenCode's storage folders")
        self._flat: dict[str, list[Path]] | None = None
        self._files: dict[str, Path] | None = None

    def close(self) -> None:
        self._flat = self._files = None

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        yield

    def marks(self) -> Marks:
        newest = max((_stamp(path) for path in self._all_files()), default=0)
        return {"after": newest - SLACK_NS}

    def changes(self, since: Marks) -> dict[str, Dirty] | None:
        self.close()
        after: int = since["after"]
        found: dict[str, Dirty] = {}
        for name, path in self._session_files().items():
            if _stamp(path) >= after:
                found[name] = Dirty(itself=True)
        for path in _tree(self._messages):
            if _stamp(path) >= after:
                found.setdefault(path.parent.name, Dirty()).messages.add(_inner_id(path))
        changed = [path for path in _tree(self._parts) if _stamp(path) >= after]
        owners = self._owners() if changed else {}
        for path in changed:
            value = _value(_bytes(path))
            message = value.get("messageID") if path.parent == self._parts else path.parent.name
            if isinstance(message, str) and message in owners:  # else it is the part of no message that is there
                found.setdefault(owners[message], Dirty()).parts.setdefault(message, set()).add(_id(value, path))
        return found

    def _owners(self) -> dict[str, str]:
        """Return the conversation of each message, by its id: O(messages)."""
        return {_inner_id(path): path.parent.name for path in _tree(self._messages)}

    def look(self, message: str) -> list[int]:
        stamps = [_stamp(path) for path in self._part_files(None, message)]
        return [len(stamps), max(stamps, default=0)]

    def names(self) -> list[tuple[int, str]]:
        found = {name: _created(path) for name, path in self._session_files().items()}
        for folder in _folders(self._messages):
            found.setdefault(folder.name, 0)
        return sorted((began, name) for name, began in found.items())

    def conversation(self, name: str) -> Conversation:
        path = self._session_files().get(name)
        if path is None:
            return Conversation(name, None, None, 0)
        data = _bytes(path)
        value = _value(data)
        version, project = value.get("version"), value.get("projectID", path.parent.name)
        worktree = _value(_bytes(self._projects / f"{project}.json")).get("worktree")
        return Conversation(
            id=name,
            data=data,
            created=created(value),
            stamp=_stamp(path),
            version=version if isinstance(version, str) else None,
            worktree=worktree if isinstance(worktree, str) else None,
        )

    def messages(self, name: str, events_after: int | None = None) -> Iterator[Item]:
        order = []
        for path in _objects(self._messages / name):
            info = info_of(_value(_bytes(path)), path.stem, name)
            order.append((created(info) or 0, str(info["id"]), path))
        for began, identifier, path in sorted(order):
            yield Item(identifier, _bytes(path), began, _stamp(path))

    def parts(self, name: str, message: str) -> Iterator[Item]:
        for path in self._part_files(name, message):
            yield _part(path)

    def _part_files(self, name: str | None, message: str) -> list[Path]:
        if self._nested:
            folders = [self._parts / name] if name is not None else _folders(self._parts)
            return [path for folder in folders for path in _objects(folder / message)]
        return [*_objects(self._parts / message), *self._loose().get(message, ())]

    def _loose(self) -> dict[str, list[Path]]:
        """Return the parts that lie in no folder of their message, by the message they name."""
        if self._flat is None:
            self._flat = {}
            for path in _objects(self._parts):
                named = _value(_bytes(path)).get("messageID")
                if isinstance(named, str):
                    self._flat.setdefault(named, []).append(path)
        return self._flat

    def _session_files(self) -> dict[str, Path]:
        if self._files is None:
            folders = [self._sessions] if self._nested else _folders(self._sessions)
            self._files = {_inner_id(path): path for folder in folders for path in _objects(folder)}
        return self._files

    def _all_files(self) -> Iterator[Path]:
        yield from self._session_files().values()
        yield from _tree(self._messages)
        yield from _tree(self._parts)


class Export:
    """One exported conversation: ``{info, messages:[{info, parts}]}``. It is read whole whenever it changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            size = path.stat().st_size
            if size > EXPORT_LIMIT:
                raise UnavailableError(
                    f"{path} is larger than {EXPORT_LIMIT} bytes", hint="import the database instead"
                )
            value = orjson.loads(path.read_bytes())
        except OSError as error:
            raise UnavailableError(f"cannot read {path}: {error.strerror}", hint="check its permissions") from error
        except orjson.JSONDecodeError as error:
            raise UnavailableError(f"{path} is not JSON: {error}", hint="export the conversation again") from error
        info = value.get("info") if isinstance(value, dict) else None
        messages = value.get("messages") if isinstance(value, dict) else None
        if not isinstance(info, dict) or not isinstance(info.get("id"), str) or not isinstance(messages, list):
            raise UnavailableError(f"{path} is not an exported conversation of OpenCode")
        self._info: dict[str, Any] = info
        self._name: str = info["id"]
        self._messages = [each for each in messages if isinstance(each, dict) and isinstance(each.get("info"), dict)]
        lists = ((str(each["info"].get("id")), each.get("parts")) for each in self._messages)
        self._parts = {name: parts for name, parts in lists if isinstance(parts, list)}
        self._mark = _stamp(path)

    def close(self) -> None:
        self._messages, self._parts = [], {}

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        yield

    def marks(self) -> Marks:
        return {"after": self._mark + 1, "file": self._mark}

    def changes(self, since: Marks) -> dict[str, Dirty] | None:
        return {} if since["file"] == self._mark else None

    def look(self, message: str) -> list[int]:
        return [self._mark]

    def names(self) -> list[tuple[int, str]]:
        return [(created(self._info) or 0, self._name)]

    def conversation(self, name: str) -> Conversation:
        if name != self._name:
            return Conversation(name, None, None, 0)
        version = self._info.get("version")
        text = version if isinstance(version, str) else None
        return Conversation(name, orjson.dumps(self._info), created(self._info), self._mark, text)

    def messages(self, name: str, events_after: int | None = None) -> Iterator[Item]:
        found = [(created(each["info"]) or 0, str(each["info"].get("id")), each["info"]) for each in self._messages]
        for began, identifier, info in sorted(found, key=lambda each: each[:2]):
            yield Item(identifier, orjson.dumps(info), began, self._mark)

    def parts(self, name: str, message: str) -> Iterator[Item]:
        for part in self._parts.get(message, ()):
            identifier = part.get("id") if isinstance(part, dict) else None
            yield Item(str(identifier), orjson.dumps(part), None, self._mark)


def _folders(folder: Path) -> list[Path]:
    return sorted(Path(entry.path) for entry in _entries(folder) if entry.is_dir())


def _objects(folder: Path) -> list[Path]:
    return sorted(Path(entry.path) for entry in _entries(folder) if entry.name.endswith(".json") and entry.is_file())


def _tree(folder: Path) -> Iterator[Path]:
    """Yield the objects in a folder and in its folders, at any depth; links to folders are not followed."""
    yield from _objects(folder)
    for entry in _entries(folder):
        if entry.is_dir(follow_symlinks=False):
            yield from _tree(Path(entry.path))


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise DamagedError(f"cannot list {folder}: {error.strerror}", hint="check its permissions") from error


def _stamp(path: Path) -> int:
    try:
        found = path.stat()
    except OSError:
        return 0  # removed meanwhile
    return max(found.st_mtime_ns, found.st_ctime_ns)


def _bytes(path: Path) -> bytes:
    """Return an object's bytes; none where it is gone or cannot be read: then its line says that it is broken."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _part(path: Path) -> Item:
    data = _bytes(path)
    return Item(_id(_value(data), path), data, None, _stamp(path))


def _value(data: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _inner_id(path: Path) -> str:
    return _id(_value(_bytes(path)), path)


def _id(value: dict[str, Any], path: Path) -> str:
    named = value.get("id")
    return named if isinstance(named, str) else path.stem


def _created(path: Path) -> int:
    return created(_value(_bytes(path))) or 0
