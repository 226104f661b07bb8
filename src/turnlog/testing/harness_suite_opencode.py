"""A scripted OpenCode that plays the scenarios of the harness suite, in this process."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, Final

from turnlog.testing.harness_suite_stage import Stage
from turnlog.testing.opencode_peer import Json, OpenCodePeer, Seen, assistant, tool, user

TOKENS: Final = {"input": 10, "output": 3, "reasoning": 0, "cache": {"read": 4, "write": 2}}


class OpenCodePlayer(OpenCodePeer):
    """The server. ``before`` is one that was killed; this one goes on with its sessions."""

    def __init__(self, folder: Path, made: Path, before: OpenCodePlayer | None = None) -> None:
        super().__init__()
        self._stages: dict[str, _Session] = {}
        self._place = (folder, made)
        if before is not None:
            self.sessions, self._messages = before.sessions, before._messages  # noqa: SLF001 - it is one of ours

    def answer(self, seen: Seen) -> tuple[int, Any, dict[str, str]]:
        parts = seen.path.strip("/").split("/")
        if parts[0] == "permission" and parts[-1] == "reply":
            if all(entry["id"] != parts[1] for entry in self.permissions):
                return 404, {"name": "NotFoundError", "data": {"message": "no such permission"}}, {}
            answered = super().answer(seen)
            self.stage(parts[1].split(":")[0]).verdict(seen.body["reply"] != "reject")
            return answered
        answered = super().answer(seen)
        if seen.method == "PATCH" and parts[1] in self.sessions:
            self.sessions[parts[1]] |= {"permission": seen.body["permission"]}
        elif parts[-1] == "prompt_async":
            self.stage(parts[1]).steer(seen.body["messageID"], seen.body["parts"][0]["text"])
        elif parts[-1] == "abort":
            self.stage(parts[1]).interrupt()
        return answered

    def foreign(self, thread: str, text: str) -> str:
        """Let another client prompt; return the id of its message."""
        request = f"msg_f{len(self._messages[thread]):012d}"
        self.put(thread, user(request, text, created=len(self._messages[thread])))
        self.stage(thread).prompt(request, text)
        return request

    def retell(self, thread: str, request: str, text: str) -> None:
        """Tell the answer to a request again, with another text."""
        (found,) = [message for message in self._messages[thread] if message["info"].get("parentID") == request]
        self.put(thread, {**found, "parts": [{**found["parts"][0], "text": text}]})

    def stage(self, thread: str) -> _Session:
        """Return the stage of a session."""
        if thread not in self._stages:
            self._stages[thread] = _Session(self, thread, *self._place)
        return self._stages[thread]

    def close(self) -> None:
        super().close()
        for stage in self._stages.values():
            stage.close()


class _Session(Stage):
    """Plays one session. A model call is a message; ``_open`` is the one that is being said."""

    def __init__(self, peer: OpenCodePlayer, thread: str, folder: Path, made: Path) -> None:
        self._peer = peer
        self._thread_id = thread
        self._names = (f"{number:04d}" for number in itertools.count())
        self._open = ""
        self._created = 0
        super().__init__(folder, made)

    def begins(self, turn: str) -> None:
        self._peer.status(self._thread_id, "busy")
        self._message(turn)

    def piece(self, turn: str, text: str) -> None:
        self._peer.delta(self._thread_id, self._open, f"prt_{self._open}_0", text)

    def tool_begins(self, turn: str, call: int, command: str) -> None:
        self._put(turn, tools=[tool(f"{self._open}_t", "running", input={"command": command})])

    def asks(self, turn: str, call: int, command: str) -> bool | None:
        rules = self._peer.sessions[self._thread_id]["permission"]
        action = [rule["action"] for rule in rules if rule["permission"] in ("*", "bash")][-1]
        if action != "ask":
            return bool(action == "allow")
        name = f"{self._thread_id}:{self._open}"
        metadata = {"command": command}
        self._peer.ask(self._thread_id, name, message=self._open, call=f"{self._open}_t", metadata=metadata)
        return None

    def tool_ends(self, turn: str, call: int, command: str, *, ran: bool) -> None:
        ended = tool(f"{self._open}_t", "completed" if ran else "error", input={"command": command})
        self._put(turn, tools=[ended], completed=self._created + 1, finish="tool-calls")
        if self._joined is None:
            self._message(turn)

    def ends(self, turn: str, status: str, text: str, *, structured: bool = False) -> None:
        names = {"failed": "APIError", "interrupted": "MessageAbortedError"}
        error: Json | None = None
        if status in names:
            words = text if status == "failed" else "Aborted"
            error = {"name": names[status], "data": {"message": words, "statusCode": 400}}
            self._peer.permissions = []
        texts = [text] if text and status != "failed" else []
        ended = self._created + 1
        self._put(turn, texts=texts, completed=ended, error=error, finish=None if error else "stop")
        self._peer.status(self._thread_id, "idle")

    def goes_on(self, turn: str, joined: str) -> str:
        self._message(joined)
        return joined

    def says(self, line: str) -> None:
        self._peer.send(f"{line}\n\n".encode())

    def _message(self, turn: str) -> None:
        """Begin a message."""
        self._created = len(self._peer.seen) * 10 + 1
        self._open = f"msg_{turn.removeprefix('msg_')}_{next(self._names)}"
        self._put(turn)

    def _put(self, turn: str, **more: Any) -> None:
        tokens = TOKENS if "completed" in more else None
        self._peer.put(self._thread_id, assistant(self._open, turn, created=self._created, tokens=tokens, **more))
