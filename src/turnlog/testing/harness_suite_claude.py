"""A scripted ``claude`` that plays the scenarios of the harness suite. It keeps its session's file, as Claude does."""

from __future__ import annotations

import json
import os
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from turnlog.testing.harness_suite_stage import VALUE, Stage

Json = dict[str, Any]
VERSION: Final = "2.1.332"
MODEL: Final = "claude-peer"
_TOKENS: Final = {"input_tokens": 10, "output_tokens": 3}
_COUNTS: Final = {"inputTokens": 10, "outputTokens": 3, "costUSD": 0.1}


def claude_player(folder: Path, made: Path) -> Path:
    """Write the program into a folder and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "claude"
    program.write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -m turnlog.testing.harness_suite_claude "{folder}" "{made}" "$@"\n',
        encoding="utf-8",
    )
    program.chmod(0o700)
    return program


class _Player(Stage):
    """The program: its lines are taken by the main thread, its turns are said by the stage's."""

    def __init__(self, folder: Path, made: Path, arguments: list[str]) -> None:
        self._lock = threading.Lock()
        self._session = next(arguments[at + 1] for at, word in enumerate(arguments) if word in _NAMES)
        self._allowed = "--dangerously-skip-permissions" in arguments
        self._schema = "--json-schema" in arguments
        self._file = Path(os.environ["CLAUDE_CONFIG_DIR"]) / "projects" / "-work" / f"{self._session}.jsonl"
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._calls = 0
        self._results = 0
        self._counted = 0
        super().__init__(folder, made)

    def main(self) -> None:
        """Take lines until there are no more; then finish what runs."""
        for text in sys.stdin.buffer:
            line: Json = json.loads(text)
            if line["type"] == "user":
                self.steer(line["uuid"], line["message"]["content"][0]["text"])
            elif line["type"] == "control_response":
                if "response" in line["response"]:  # else it declined a question that it does not know
                    self.verdict(line["response"]["response"]["behavior"] == "allow")
                    self._out(line)
            else:
                self._control(line["request_id"], line["request"])
        self.close(finish=True)

    def _control(self, request: str, about: Json) -> None:
        answer: Json = {"claude_code_version": VERSION}
        if about["subtype"] == "interrupt":
            answer = {"cancelled": self.interrupt()}
        self._out(
            {
                "type": "control_response",
                "response": {"subtype": "success", "request_id": request, "response": answer},
            }
        )

    # --- the turns --------------------------------------------------------------------------------------------------

    def begins(self, turn: str) -> None:
        content = [{"type": "text", "text": "a prompt"}]
        self._write({"type": "user", "uuid": turn, "promptSource": "sdk", "message": {"content": content}})
        self._say_line(type="system", subtype="init")
        self._say_line(type="user", uuid=turn, isReplay=True, message={"role": "user", "content": content})
        self._say_line(type="system", subtype="status", status="requesting", user_message_uuids=[turn])
        self._call()

    def piece(self, turn: str, text: str) -> None:
        delta = {"type": "text_delta", "text": text}
        self._event({"type": "content_block_delta", "index": 0, "delta": delta})

    def tool_begins(self, turn: str, call: int, command: str) -> None:
        block = {"type": "tool_use", "id": f"{turn}_{call}", "name": "Bash", "input": {"command": command}}
        self._assistant(block, "tool_use")

    def asks(self, turn: str, call: int, command: str) -> bool | None:
        if self._allowed:
            return True
        about = {"tool_name": "Bash", "input": {"command": command}, "tool_use_id": f"{turn}_{call}"}
        request = {"subtype": "can_use_tool", **about}
        self._out({"type": "control_request", "request_id": f"ask_{turn}_{call}", "request": request})
        return None

    def tool_ends(self, turn: str, call: int, command: str, *, ran: bool) -> None:
        block = {"type": "tool_result", "tool_use_id": f"{turn}_{call}", "is_error": not ran}
        line = {"type": "user", "message": {"role": "user", "content": [block]}}
        self._write(line)
        self._say_line(**line)
        self._call()

    def ends(self, turn: str, status: str, text: str, *, structured: bool = False) -> None:
        end: Json = {"subtype": "success", "is_error": False, "result": text}
        if status == "completed":
            value = VALUE if structured and self._schema else None
            self._assistant({"type": "text", "text": text}, "end_turn")
            if value is not None:
                end["structured_output"] = value
                self._write({"type": "attachment", "attachment": {"type": "structured_output", "data": value}})
        elif status == "failed":
            block = {"type": "text", "text": text}
            message = {"id": "none", "model": "<synthetic>", "content": [block]}
            self._write({"type": "assistant", "isApiErrorMessage": True, "message": message})
            end |= {"is_error": True, "api_error_status": 400}
        else:
            mark = [{"type": "text", "text": "[Request interrupted by user]"}]
            self._write({"type": "user", "message": {"content": mark}})
            end = {"subtype": "error_during_execution", "is_error": True, "terminal_reason": "aborted_streaming"}
        self._result(turn, end)

    def goes_on(self, turn: str, joined: str) -> str:
        self._write({"type": "attachment", "attachment": {"type": "queued_command", "source_uuid": joined}})
        self._say_line(type="system", subtype="status", status="requesting", user_message_uuids=[turn, joined])
        return turn

    def says(self, line: str) -> None:
        self._line(line)

    # --- words ------------------------------------------------------------------------------------------------------

    def _call(self) -> None:
        """Begin a model call."""
        self._calls += 1
        self._event({"type": "message_start", "message": {"id": self._message, "model": MODEL}})

    @property
    def _message(self) -> str:
        return f"msg_{os.getpid()}_{self._calls}"

    def _assistant(self, block: Json, reason: str) -> None:
        """Say the block that ends a model call, and what the call cost."""
        message = {"id": self._message, "model": MODEL, "content": [block], "stop_reason": reason, "usage": _TOKENS}
        line = {"type": "assistant", "message": message}
        self._write(line)
        self._say_line(**line)
        self._event({"type": "message_delta", "usage": _TOKENS})
        self._counted += 1

    def _result(self, turn: str, end: Json) -> None:
        self._results += 1
        totals = {MODEL: {name: count * self._counted for name, count in _COUNTS.items()}}
        self._say_line(
            type="result",
            uuid=f"result-{os.getpid()}-{self._results}",
            user_message_uuid=turn,
            user_message_uuids=[turn],
            usage=_TOKENS,
            modelUsage=totals,
            total_cost_usd=self._counted / 10,
            **end,
        )

    def _event(self, event: Json) -> None:
        self._say_line(type="stream_event", event=event)

    def _say_line(self, **line: Any) -> None:
        self._out({**line, "session_id": self._session, "timestamp": _now()})

    def _out(self, line: Json) -> None:
        self._line(json.dumps(line))

    def _line(self, text: str) -> None:
        with self._lock:
            sys.stdout.buffer.write(text.encode() + b"\n")
            sys.stdout.buffer.flush()

    def _write(self, line: Json) -> None:
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**line, "sessionId": self._session, "timestamp": _now()}) + "\n")


_NAMES: Final = ("--session-id", "--resume")


def _now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def main() -> None:
    """Play, as the arguments say."""
    if "--version" in sys.argv:
        print(f"{VERSION} (Claude Code)")
        return
    _Player(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]).main()


if __name__ == "__main__":
    main()
