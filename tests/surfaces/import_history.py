"""Histories of all programs in one folder, imported and asked about through the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.harness.claude_reading import SESSION, file_of
from tests.harness.codex_rollouts import Rollout
from tests.harness.opencode_stored import Db
from tests.surfaces.conftest import Outcome, Turnlog

PROBLEMS = 3
TOKENS = ("input", "output", "cache_read", "cache_write")

Sums = tuple[int | None, ...]


class History:
    """Files below ``root`` and the ledger that ``turnlog`` keeps of them."""

    def __init__(self, turnlog: Turnlog, root: Path) -> None:
        self.turnlog = turnlog
        self.root = root

    # --- files

    def write(self, name: str, data: bytes) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def append(self, name: str, data: bytes) -> None:
        with (self.root / name).open("ab") as file:
            file.write(data)

    def claude(self, *entries: dict[str, Any] | bytes, name: str = SESSION, project: str = "-home-dev-app") -> str:
        """Write a session file; ``name`` may lead into its folder of agents. Returns its path below the root."""
        place = f"claude/projects/{project}/{name}.jsonl"
        self.write(place, file_of(*entries))
        return place

    def codex(self, rollout: Rollout | bytes, name: str | None = None, *, folder: str = "sessions/2026/09/21") -> str:
        """Write a rollout; returns its path below the root."""
        if name is None:
            assert isinstance(rollout, Rollout)
            name = rollout.thread
        place = f"codex/{folder}/rollout-2026-09-21T14-13-20-{name}.jsonl"
        self.write(place, rollout.bytes if isinstance(rollout, Rollout) else rollout)
        return place

    def opencode(self, name: str = "opencode.db", *, wal: bool = False) -> Db:
        folder = self.root / "opencode"
        folder.mkdir(parents=True, exist_ok=True)
        return Db(folder / name, wal=wal)

    # --- the command line

    def imported(self, *words: str, roots: Iterable[Path | str] = (), code: int = 0) -> dict[str, Any]:
        """Import all, or ``roots`` below it; returns the JSON."""
        places = [self.root / place for place in roots] or [self.root]
        done = self.turnlog("import", *(word for place in places for word in ("--root", str(place))), *words, "--json")
        assert done.code == code, done.out + done.err
        value: dict[str, Any] = done.json
        return value

    def usage(self, kind: str = "total", *words: str) -> dict[str, Any]:
        done = self.turnlog("usage", kind, "--no-import", "--json", "--timezone", "UTC", *words)
        assert done.code == 0, done.err
        value: dict[str, Any] = done.json
        return value

    def table(self, kind: str = "total", *words: str) -> Outcome:
        return self.turnlog("usage", kind, "--no-import", "--timezone", "UTC", *words)

    def total(self, *words: str) -> Sums:
        """(input, output, cache read, cache write) of everything."""
        return tokens(self.usage("total", *words)["totals"])

    def calls(self) -> int:
        count: int = self.usage()["totals"]["calls"]
        return count

    def rows(self, kind: str = "session", *words: str) -> dict[str, Sums]:
        """The tokens of each row of a report."""
        return {row["key"]: tokens(row) for row in self.usage(kind, *words)["rows"]}

    def gaps(self) -> dict[str, int]:
        return {gap["kind"]: gap["count"] for gap in self.usage()["totals"]["gaps"]}

    def sessions(self) -> dict[str, dict[str, Any]]:
        done = self.turnlog("sessions", "--all", "--json")
        assert done.code == 0, done.err
        return {each["id"]: each for each in done.json["sessions"]}

    def explained(self, session: str) -> dict[str, Any]:
        done = self.turnlog("usage", "explain", session, "--json")
        assert done.code == 0, done.err
        value: dict[str, Any] = done.json
        return value

    def events(self, session: str, kind: str) -> list[dict[str, Any]]:
        done = self.turnlog("history", session, "--json")
        assert done.code == 0, done.err
        return [event for event in done.json if event["kind"] == kind]

    def ends(self, session: str) -> list[str]:
        """The statuses of the turns that have an end."""
        return [event["payload"]["status"] for event in self.events(session, "completed")]

    def notes(self, session: str) -> list[str]:
        """The first words of what was observed of a conversation."""
        return [event["payload"]["source"].partition(":")[0] for event in self.events(session, "observed")]

    def hits(self, query: str, *words: str) -> list[dict[str, Any]]:
        done = self.turnlog("search", query, *words, "--json")
        assert done.code == 0, done.err
        found: list[dict[str, Any]] = done.json["hits"]
        return found

    def sound(self) -> None:
        """The ledger agrees with itself."""
        done = self.turnlog("verify")
        assert done.code == 0, done.out


def tokens(row: Mapping[str, Any]) -> Sums:
    return tuple(row["tokens"][name] for name in TOKENS)


def problems(done: Mapping[str, Any]) -> list[tuple[str, int]]:
    """(kind, offset) of each problem that an import tells of."""
    return [(each["kind"], each["offset"]) for each in done["problems"]]


def kinds(done: Mapping[str, Any]) -> list[str]:
    return sorted(each["kind"] for each in done["problems"])


def listing(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Names, sizes, times and modes of everything below a folder."""
    return {
        str(path.relative_to(folder)): (facts.st_size, facts.st_mtime_ns, facts.st_mode)
        for path in sorted(folder.rglob("*"))
        for facts in [path.lstat()]
    }
