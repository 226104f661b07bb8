"""Small histories on disk, of the shape that Codex writes, and a ledger that has read them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import turnlog

BEGIN = datetime(2026, 2, 2, 2, 40, tzinfo=UTC)
MAIN = "019c1000-0000-7000-8000-000000000001"
CHILD = "019c1000-0000-7000-8000-000000000002"


class Rollout:
    """One session file; each line is a second after the one before."""

    def __init__(self, thread: str, *, cwd: str = "/home/me/app", **meta: Any) -> None:
        self.thread = thread
        self._lines: list[str] = []
        self._line("session_meta", {"id": thread, "cwd": cwd, "cli_version": "0.120.0", "originator": "t", **meta})

    def _line(self, kind: str, payload: dict[str, Any]) -> None:
        at = BEGIN + timedelta(seconds=len(self._lines))
        stamp = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self._lines.append(json.dumps({"timestamp": stamp, "type": kind, "payload": payload}))

    def item(self, kind: str, **members: Any) -> None:
        self._line("response_item", {"type": kind, **members})

    def turn(self, turn: str, prompt: str) -> None:
        self._line("event_msg", {"type": "task_started", "turn_id": turn})
        self._line("turn_context", {"turn_id": turn, "model": "gpt-5.5-mini", "cwd": "/home/me/app"})
        self._line("event_msg", {"type": "user_message", "message": prompt})
        self.item("message", role="user", content=[{"type": "input_text", "text": prompt}])

    def think(self, text: str) -> None:
        self.item("reasoning", summary=[{"type": "summary_text", "text": text}])

    def call(self, name: str, arguments: Any, output: str) -> None:
        self.item("function_call", name=name, arguments=json.dumps(arguments), call_id="c")
        self.item("function_call_output", call_id="c", output=output)

    def answer(self, turn: str, text: str) -> None:
        self.item("message", role="assistant", content=[{"type": "output_text", "text": text}])
        usage = {
            "input_tokens": 1_000,
            "cached_input_tokens": 200,
            "output_tokens": 50,
            "reasoning_output_tokens": 10,
            "total_tokens": 1_050,
        }
        info = {"total_token_usage": usage, "last_token_usage": usage, "model_context_window": 200_000}
        self._line("event_msg", {"type": "token_count", "info": info})
        self._line("event_msg", {"type": "task_complete", "turn_id": turn, "last_agent_message": text})

    def save(self, root: Path) -> Path:
        folder = root / "sessions" / "2026" / "02" / "02"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"rollout-2026-02-02T02-40-00-{self.thread}.jsonl"
        path.write_text("\n".join(self._lines) + "\n", encoding="utf-8")
        return path


OUTPUT = "\n".join(f"line {number} of the output" for number in range(40))


def write(root: Path) -> None:
    """Write a conversation of two turns, and that of a subagent which the first turn spawned."""
    main = Rollout(MAIN)
    main.turn("turn-1", "please fix the login\x1b[0m <b>test</b>\n```py\nassert 1")
    main.think("the **time zone** is wrong")
    main.call("exec_command", {"cmd": "export api_key=sk-live-abcdef1234567890abcd"}, OUTPUT)
    main.answer("turn-1", "It was the `time zone`.\n\n```py\nzone = UTC\n```\nFixed <script>alert(1)</script>.")
    main.turn("turn-2", "thanks")
    main.call("exec_command", {"cmd": "make test"}, "Process exited with code 2\nOutput:\nboom")
    main.answer("turn-2", "All done.")
    main.save(root)
    spawn = {"parent_thread_id": MAIN, "depth": 1, "agent_nickname": "Ada", "agent_role": "explorer"}
    child = Rollout(
        CHILD, parent_thread_id=MAIN, source={"subagent": {"thread_spawn": spawn}}, thread_source="subagent"
    )
    child.turn("turn-c", "look around")
    child.answer("turn-c", "Nothing to see.")
    child.save(root)


def read(url: str, root: Path, *, archive: bool = True) -> None:
    """Import what ``write`` made."""
    with turnlog.open_ledger(url) as ledger:
        ledger.import_histories(provider="codex", roots=[root], archive=archive)
