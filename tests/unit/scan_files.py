"""Small histories in the shape of the programs' own files, for looks at usage."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from turnlog.intake import readers
from turnlog.intake.scan import Scan, scan_usage

COUNTERS = ("calls", "input", "output", "cache_read", "cache_write", "cache_write_1h", "reasoning")


def variables(folder: Path) -> dict[str, str]:
    return {
        "HOME": str(folder / "home"),
        "CLAUDE_CONFIG_DIR": str(folder / "claude"),
        "CODEX_HOME": str(folder / "codex"),
        "XDG_DATA_HOME": str(folder / "data"),
    }


def scan(folder: Path, **more: Any) -> Scan:
    return scan_usage(readers(), variables(folder), **more)


def totals(found: Scan, **wanted: str) -> dict[str, int]:
    """Add up all sums, or those of one ``session``, ``model`` or ``provider``; counters nobody told are left out."""
    told: dict[str, int] = {}
    for session, buckets in found.buckets.items():
        for bucket in buckets:
            of = {"session": session, "model": bucket.kind.model, "provider": bucket.kind.provider}
            if all(of[name] == value for name, value in wanted.items()):
                for name in COUNTERS:
                    value = getattr(bucket.sums, name)
                    if value is not None:
                        told[name] = told.get(name, 0) + value
    return told


def gaps(found: Scan) -> dict[str, int]:
    told: dict[str, int] = {}
    for buckets in found.buckets.values():
        for bucket in buckets:
            for kind, count in bucket.sums.gaps.items():
                told[kind] = told.get(kind, 0) + count
    return told


def write(path: Path, lines: Iterable[Any], end: str = "\n") -> Path:
    """Write lines: what is no text is written as compact JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = [line if isinstance(line, str) else json.dumps(line, separators=(",", ":")) for line in lines]
    path.write_text("\n".join(texts) + end)
    return path


# --- Claude Code


def answer(call: str | None, output: int | None = 5, *, session: str = "s1", at: str = "10:00:00", **more: Any) -> Any:
    """An assistant line. ``more`` replaces members of the record, or with ``usage`` and ``model`` of the message."""
    usage = {
        "input_tokens": 10,
        "cache_creation_input_tokens": 20,
        "cache_read_input_tokens": 30,
        "cache_creation": {"ephemeral_5m_input_tokens": 5, "ephemeral_1h_input_tokens": 15},
        "output_tokens": output,
        "service_tier": "standard",
    }
    usage |= more.pop("usage", {})
    message = {"model": more.pop("model", "claude-opus-4-6"), "id": call, "type": "message", "role": "assistant"}
    message["content"] = [{"type": "text", "text": 'what "usage":{"input_tokens":9} means'}]
    message["usage"] = {name: value for name, value in usage.items() if value is not None}
    if call is None:
        del message["id"]
    return {
        "parentUuid": None,
        "isSidechain": False,
        "cwd": "/home/dev/app",
        "sessionId": session,
        "version": "2.1.42",
        "message": message,
        "requestId": f"req_{call}",
        "type": "assistant",
        "uuid": f"u-{session}-{call}-{output}",
        "timestamp": at if "T" in at else f"2026-09-01T{at}.000Z",
        **more,
    }


def result(session: str = "s1") -> Any:
    """The result of a tool that ran a subagent: its usage is a sum, and no call."""
    return {
        "type": "user",
        "sessionId": session,
        "uuid": "u-result",
        "timestamp": "2026-09-01T10:00:09.000Z",
        "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "done"}]},
        "toolUseResult": {"agentId": "a1", "usage": {"input_tokens": 7000, "output_tokens": 7000}},
    }


def claude(folder: Path, name: str, lines: Iterable[Any], end: str = "\n") -> Path:
    return write(folder / "claude" / "projects" / "-home-dev-app" / name, lines, end)


# --- Codex


def used(total: int, output: int = 10, cached: int = 40, write_: int = 0) -> dict[str, int]:
    return {
        "input_tokens": total,
        "cached_input_tokens": cached,
        "cache_write_input_tokens": write_,
        "output_tokens": output,
        "reasoning_output_tokens": output // 2,
        "total_tokens": total + output,
    }


def codex_line(kind: str, payload: Any, second: int = 0, **more: Any) -> Any:
    return {"timestamp": f"2026-09-01T11:00:{second:02d}.000Z", **more, "type": kind, "payload": payload}


def meta(thread: str, **more: Any) -> Any:
    told = {"id": thread, "timestamp": "2026-09-01T11:00:00.000Z", "cwd": "/home/dev/api", "model_provider": "openai"}
    return codex_line("session_meta", told | more)


def started(turn: str, second: int = 1) -> list[Any]:
    return [
        codex_line("event_msg", {"type": "task_started", "turn_id": turn, "started_at": 1788260400 + second}, second),
        codex_line("turn_context", {"turn_id": turn, "cwd": "/home/dev/api", "model": "gpt-5.5"}, second),
    ]


def count(total: dict[str, int] | None, last: dict[str, int] | None = None, second: int = 2, **more: Any) -> Any:
    info = None if total is None else {"total_token_usage": total, "last_token_usage": last or total}
    payload = {"type": "token_count", "info": info, "rate_limits": {"primary": {"used_percent": second}}}
    return codex_line("event_msg", payload, second, **more)


def record(thread: str, turn: str, response: str, usage: Any, total: Any, second: int = 2, **more: Any) -> Any:
    payload = {"thread_id": thread, "turn_id": turn, "response_id": response, "usage": usage}
    return codex_line("token_usage_record", payload | {"thread_token_usage": total}, second, **more)


def uuid7(number: int, at: int = 0x19904A00000) -> str:
    """An id made ``number`` ms after ``at``."""
    text = f"{at + number:012x}"
    return f"{text[:8]}-{text[8:]}-7000-8000-{number:012x}"


def codex(folder: Path, thread: str, lines: Iterable[Any], end: str = "\n") -> Path:
    name = f"rollout-2026-09-01T11-00-00-{thread}.jsonl"
    return write(folder / "codex" / "sessions" / "2026" / "09" / "01" / name, lines, end)
