"""What Claude and we remember of one conversation on disk: its session files and our marks, asked together."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

import msgspec

from turnlog.errors import RefusedError, UnavailableError
from turnlog.harness import Batch, Delivery, HarnessConfig
from turnlog.harness.claude import disk, history, record
from turnlog.process import START_TOLERANCE_MS, Liveness, identify, liveness

_OUTSIDE: Final = re.compile(r"[^A-Za-z0-9]")


class Memory:
    """The files of one conversation. Everything here may block: call it in a thread."""

    def __init__(self, config: HarnessConfig, thread: str, variables: Mapping[str, str]) -> None:
        self._config = config
        self._thread = thread
        self._folder = disk.config_folder(variables, config.cwd)
        self._ended: set[str] = set()

    def files(self) -> list[Path]:
        """Return the session's files, that of our folder first."""
        slug = _OUTSIDE.sub("-", str(self._config.cwd.resolve()))
        return sorted(disk.session_files(self._folder, self._thread), key=lambda path: path.parent.name != slug)

    def progress(self) -> object:
        """Return what changes while Claude works on the conversation."""
        return disk.progress(self._folder, self._thread)

    def sending(self, request: str) -> None:
        """A request is about to leave."""
        record.mark(self._config.state_dir, "sent", request)

    def recorded(self, batch: Batch) -> None:
        """The driver has recorded a batch: ends in it need no second witness from the file."""
        for receipt in batch.receipts:
            if receipt.kind == "completed" and receipt.thread == self._thread and receipt.turn not in self._ended:
                self._ended.add(receipt.turn)
                record.mark(self._config.state_dir, "ended", receipt.turn)

    def batch(self, own: Collection[str], over: Collection[str], live: Collection[str]) -> Batch:
        """Read what the session's files say about turns that the wire did not already tell all of (``over``).

        Turns in ``live`` are still being worked on.
        """
        session = self._read(own) or disk.Session()
        marks = record.read_marks(self._config.state_dir)
        over = marks.ended.union(over)
        found = history.read_batch(self._thread, session, own, over, live)
        left = history.unwritten(self._thread, session, marks.sent.intersection(own) - over - set(live))
        return msgspec.structs.replace(
            found, notes=(*found.notes, *left.notes), stalled=(*found.stalled, *left.stalled)
        )

    def look_up(self, request: str) -> Delivery:
        """Look for a request in the session's file, then in our marks.

        It is absent when it never left, or was dropped before Claude began with it. That the file does not name it
        proves nothing: Claude writes with some delay, and old versions do not name lines they took along. What the file
        says comes first: our marks may belong to a newer state folder than the request.
        """
        session = self._read({request})
        if session is not None:
            if any(turn.uuid == request for turn in session.turns) or request in session.absorbed:
                return Delivery.FOUND
            if request in session.cancelled:
                return Delivery.ABSENT
        marks = record.read_marks(self._config.state_dir)
        return Delivery.ABSENT if marks.known and request not in marks.sent else Delivery.UNKNOWN

    def require(self) -> None:
        """Refuse to go on in a conversation that Claude forgot: it would begin from nothing under the same name."""
        own = self._config.own_requests
        if not own or self.files():
            return
        marks = record.read_marks(self._config.state_dir)
        if own & marks.ended or not marks.known:
            raise RefusedError(
                f"Claude's history of the conversation {self._thread} is gone",
                hint="Claude deletes old histories (cleanupPeriodDays); begin another one with `turnlog run`",
            )

    def refuse_other_writers(self) -> None:
        """Raise UnavailableError when another program has the conversation open: two would write into one file."""
        for pid, since in disk.other_writers(self._folder, self._thread):
            found = identify(pid)
            if found is None or liveness(found.boot_id, pid, found.started_at) is Liveness.DEAD:
                continue
            if found.started_at <= since + START_TOLERANCE_MS:  # else the pid was used again
                raise UnavailableError(
                    f"another Claude (pid {pid}) has this conversation open", hint="close it and try again"
                )

    def _read(self, own: Collection[str]) -> disk.Session | None:
        for path in self.files():
            try:
                return disk.read_session(path, frozenset(own))
            except OSError:
                continue
        return None
