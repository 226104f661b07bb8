"""A scripted Codex app-server that plays the scenarios of the harness suite. Its history is a file, as Codex's is."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from turnlog.testing.codex_peer import THREAD, _Peer, answer_item, turn, usage, user_item
from turnlog.testing.harness_suite_stage import VALUE, Stage

Json = dict[str, Any]


def codex_player(folder: Path, made: Path) -> Path:
    """Write the program into a folder and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "codex"
    program.write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -m turnlog.testing.harness_suite_codex "{folder}" "{made}" "$@"\n',
        encoding="utf-8",
    )
    program.chmod(0o700)
    return program


class _Player(_Peer):
    """The program: its requests are taken by the main thread, its turns are said by the stage's."""

    def __init__(self, folder: Path, made: Path) -> None:
        super().__init__({}, folder / "received")
        self._lock = threading.Lock()
        self._history = folder / "turns.json"
        self.turns: list[Json] = json.loads(self._history.read_text()) if self._history.exists() else []
        for each in self.turns:
            if each["status"] == "inProgress":
                each["status"] = "interrupted"  # its process is gone: nobody wrote the end down
        self.policy = "never"
        self.total = 0
        self._stage = _Thread(self, folder, made)
        self.keep()

    def run(self) -> int:
        for line in sys.stdin.buffer:
            message = json.loads(line)
            if "result" in message:  # not an error: then it declined a question that it does not know
                self._stage.verdict("accept" in message["result"].get("decision", ""))
                self.say("serverRequest/resolved", requestId=message["id"])
            elif "method" in message and "id" in message:
                self._asked(message)
        self._stage.close()
        return 0

    def say(self, method: str, **params: Any) -> None:
        """Say something about the conversation."""
        self._write({"method": method, "params": {"threadId": THREAD, **params}, "emittedAtMs": 1})

    def keep(self) -> None:
        """Write the history."""
        self._threads = {THREAD: self.turns} if self.turns else {}
        temporary = self._history.with_suffix(".new")
        temporary.write_text(json.dumps(self.turns), encoding="utf-8")
        temporary.replace(self._history)

    def raw(self, line: str) -> None:
        """Say a line as it is."""
        self._raw(line.encode())

    def ask(self, number: int, **params: Any) -> None:
        """Ask for a permission."""
        about = {"threadId": THREAD, **params}
        self._write({"method": "item/commandExecution/requestApproval", "id": number, "params": about})

    def _asked(self, message: Json) -> None:
        method, params = message["method"], message.get("params") or {}
        handlers = {"turn/start": self._start, "turn/steer": self._steer, "turn/interrupt": self._interrupt}
        if method in ("thread/start", "thread/resume"):
            self.policy = params["approvalPolicy"]
        if method not in handlers:
            super()._asked(message)
            return
        self._write({"id": message["id"], **handlers[method](params)})

    def _start(self, params: Json) -> Json:
        if self.turns and self.turns[-1]["status"] != "inProgress":
            self._stage.resting.wait()
        if not self._stage.idle():
            return {"result": {"turn": turn(self._steer(params)["result"]["turnId"], "inProgress")}}
        name = f"turn_{len(self.turns) + 1}"
        text = params["input"][0]["text"]
        self.turns.append(turn(name, "inProgress", client=params["clientUserMessageId"]))
        self.keep()
        self._stage.prompt(name, text)
        return {"result": {"turn": turn(name, "inProgress")}}

    def _steer(self, params: Json) -> Json:
        running = self._stage.turn
        if running is None:
            return {"error": {"code": -32600, "message": "no active turn to steer"}}
        self.turns[-1]["items"].append(user_item(params["clientUserMessageId"]))
        self.keep()
        self._stage.join(running, params["input"][0]["text"])
        return {"result": {"turnId": running}}

    def _interrupt(self, params: Json) -> Json:
        self._stage.interrupt()
        return {"result": {}}

    def _raw(self, line: bytes) -> None:
        with self._lock:
            super()._raw(line)


class _Thread(Stage):
    """Plays the conversation."""

    def __init__(self, player: _Player, folder: Path, made: Path) -> None:
        self._player = player
        self._asked = 0
        self._message = ""
        super().__init__(folder, made)

    def begins(self, turn: str) -> None:
        self._message = f"message_{turn}"
        self._player.say("turn/started", turn=self._entry() | {"items": []})
        self._player.say("item/completed", turnId=turn, item=self._entry()["items"][0])

    def piece(self, turn: str, text: str) -> None:
        self._player.say("item/agentMessage/delta", turnId=turn, itemId=self._message, delta=text)

    def tool_begins(self, turn: str, call: int, command: str) -> None:
        self._player.say("item/started", turnId=turn, item=self._command(turn, call, command, "inProgress"))

    def asks(self, turn: str, call: int, command: str) -> bool | None:
        if self._player.policy == "never":
            return True
        self._asked += 1
        self._player.ask(self._asked, turnId=turn, itemId=f"{turn}_{call}", command=command)
        return None

    def tool_ends(self, turn: str, call: int, command: str, *, ran: bool) -> None:
        item = self._command(turn, call, command, "completed" if ran else "declined")
        self._player.say("item/completed", turnId=turn, item=item)
        self._count(turn)

    def ends(self, turn: str, status: str, text: str, *, structured: bool = False) -> None:
        entry = self._entry()
        if status == "completed":
            item = answer_item(json.dumps(VALUE) if structured else text, identifier=self._message)
            entry["items"].append(item)
            self._player.say("item/completed", turnId=turn, item=item)
            self._count(turn)
        ended = {"status": status, "completedAt": int(time.time()), "durationMs": 1}
        entry.update(ended, error={"message": text} if status == "failed" else None)
        self._player.keep()
        self._player.say("turn/completed", turn=entry | {"items": []})

    def says(self, line: str) -> None:
        self._player.raw(line)

    def goes_on(self, turn: str, joined: str) -> str:
        self._message += "_more"
        return turn

    def _entry(self) -> Json:
        return self._player.turns[-1]

    def _count(self, turn: str) -> None:
        self._player.total += 16
        self._player.say("thread/tokenUsage/updated", turnId=turn, tokenUsage=usage(self._player.total, 16))

    def _command(self, turn: str, call: int, command: str, state: str) -> Json:
        item = {"type": "commandExecution", "id": f"{turn}_{call}", "command": command, "status": state}
        return item if state == "inProgress" else item | {"durationMs": 1}


def main() -> int:
    """Play, as the arguments say."""
    if "--version" in sys.argv:
        print("codex-cli 0.171.0")
        return 0
    return _Player(Path(sys.argv[1]), Path(sys.argv[2])).run()


if __name__ == "__main__":
    sys.exit(main())
