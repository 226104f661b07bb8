"""A scripted Codex app-server, for what the real one cannot be made to show: lost answers, broken lines, old versions.

It is a program (standard library only) that is told by a scenario what to do at each request:

    {"version": "0.171.0", "threads": {"T": [turn, …]}, "on": {"turn/start": [[action, …], …]}, "ignore": ["TERM"]}

Each list under ``on`` holds what to do at the first, second … call of a method; the last one is repeated. Actions:

    {"reply": result}        answer this request           {"error": {"code": -32600, "message": "no"}}
    {"reply_to": method, "result": …}                      answer the oldest unanswered request of that method
    {"say": method, "params": {…}}                         a notification
    {"ask": id, "method": …, "params": {…}}                a request of the server
    {"raw": text}            a line as it is               {"long": n}      a notification of n bytes
    {"long_reply": n}        an answer of n bytes
    {"flood": n}             n bytes to stderr             {"exit": code}   end at once, {"exit": -9}: by a signal

Methods without a script get plausible answers: ``initialize``, ``thread/start`` (thread ``T``), ``thread/resume``,
``thread/turns/list``, ``thread/read``, ``thread/loaded/list``, ``thread/list``, ``account/read``; others an empty
object. A test steers it by requests of its own, e.g. ``peer/next``. Everything received is appended to ``….received``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter, defaultdict, deque
from pathlib import Path
from typing import Any

THREAD = "T"


def peer_program(folder: Path, scenario: dict[str, Any], name: str = "codex") -> Path:
    """Write a program that plays a scenario; ``TURNLOG_CODEX_BIN`` may name it."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / f"{name}.scenario.json"
    script.write_text(json.dumps(scenario), encoding="utf-8")
    program = folder / name
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" "{script}" "$@"\n', encoding="utf-8")
    program.chmod(0o700)
    return program


def received(program: Path) -> list[dict[str, Any]]:
    """Return what a peer was sent so far."""
    path = program.with_name(f"{program.name}.scenario.json.received")
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    return [message for line in lines if isinstance(message := json.loads(line), dict)]


def turn(
    identifier: str, status: str = "completed", *, text: str | None = None, client: str | None = None, **more: Any
) -> dict[str, Any]:
    """Return a turn object in Codex's shape."""
    items: list[dict[str, Any]] = []
    if client is not None:
        items.append(user_item(client))
    if text is not None:
        items.append(answer_item(text))
    ended = 1_796_000_001 if status in ("completed", "failed", "interrupted") else None
    return {
        "id": identifier,
        "rootTurnId": identifier,
        "items": items,
        "itemsView": "full",
        "status": status,
        "error": None,
        "startedAt": 1_796_000_000,
        "completedAt": ended,
        "durationMs": 1000 if ended else None,
        **more,
    }


def user_item(client: str | None, text: str = "go") -> dict[str, Any]:
    """Return a user message item."""
    content = [{"type": "text", "text": text, "text_elements": []}]
    return {"type": "userMessage", "id": f"u-{client}", "clientId": client, "content": content}


def answer_item(text: str, phase: str | None = None, identifier: str = "m1") -> dict[str, Any]:
    """Return an agent message item."""
    return {"type": "agentMessage", "id": identifier, "text": text, "phase": phase}


def usage(total: int, last: int | None = None) -> dict[str, Any]:
    """Return a token usage object whose input is ``total``."""

    def counters(value: int) -> dict[str, int]:
        return {
            "totalTokens": value + value // 10,
            "inputTokens": value,
            "cachedInputTokens": value // 4,
            "outputTokens": value // 10,
            "reasoningOutputTokens": 0,
        }

    return {"total": counters(total), "last": counters(total if last is None else last), "modelContextWindow": 1000}


def say(method: str, thread: str = THREAD, **params: Any) -> dict[str, Any]:
    """Return the action of a notification about a thread."""
    return {"say": method, "params": {"threadId": thread, **params}}


def started(identifier: str, thread: str = THREAD, **more: Any) -> dict[str, Any]:
    """Return the action that announces a turn."""
    return say("turn/started", thread, turn=turn(identifier, "inProgress", **more))


def completed(identifier: str, status: str = "completed", thread: str = THREAD, **more: Any) -> dict[str, Any]:
    """Return the action that ends a turn."""
    return say("turn/completed", thread, turn=turn(identifier, status, **more))


class _Peer:
    def __init__(self, scenario: dict[str, Any], log: Path) -> None:
        self._scenario = scenario
        self._log = log
        self._calls: Counter[str] = Counter()
        self._unanswered: dict[str, deque[Any]] = defaultdict(deque)
        self._threads: dict[str, list[Any]] = scenario.get("threads", {})

    def run(self) -> int:
        for name in set(self._scenario.get("ignore", [])) - {"EOF"}:
            signal.signal(getattr(signal, f"SIG{name}"), signal.SIG_IGN)
        for line in sys.stdin.buffer:
            with self._log.open("ab") as file:
                file.write(line)
            message = json.loads(line)
            if "method" in message and "id" in message:
                self._asked(message)
        while "EOF" in self._scenario.get("ignore", []):
            signal.pause()
        return 0

    def _asked(self, message: dict[str, Any]) -> None:
        method = message["method"]
        self._unanswered[method].append(message["id"])
        scripts = self._scenario.get("on", {}).get(method)
        call = self._calls[method]
        self._calls[method] += 1
        if scripts is None:
            self._write({"id": self._unanswered[method].pop(), **self._default(method, message.get("params") or {})})
            return
        for action in scripts[min(call, len(scripts) - 1)]:
            self._act(method, action)

    def _act(self, method: str, action: dict[str, Any]) -> None:
        if "reply" in action:
            self._write({"id": self._unanswered[method].pop(), "result": action["reply"]})
        elif "error" in action:
            self._write({"id": self._unanswered[method].pop(), "error": action["error"]})
        elif "reply_to" in action:
            self._write({"id": self._unanswered[action["reply_to"]].popleft(), "result": action["result"]})
        elif "say" in action:
            self._write({"method": action["say"], "params": action.get("params", {}), "emittedAtMs": 1})
        elif "ask" in action:
            self._write({"method": action["method"], "id": action["ask"], "params": action.get("params", {})})
        else:
            self._misbehave(method, action)

    def _misbehave(self, method: str, action: dict[str, Any]) -> None:
        if "raw" in action:
            self._raw(action["raw"].encode("utf-8", "surrogateescape"))
        elif "long" in action:
            self._raw(b'{"method":"long","params":{"text":"' + b"y" * (action["long"] - 38) + b'"}}')
        elif "long_reply" in action:
            head = b'{"id":%d,"result":{"text":"' % self._unanswered[method].pop()
            self._raw(head + b"y" * (action["long_reply"] - len(head) - 3) + b'"}}')
        elif "flood" in action:
            block = b"e" * 65535 + b"\n"
            for _ in range(action["flood"] // len(block)):
                sys.stderr.buffer.write(block)
            sys.stderr.buffer.flush()
        elif "exit" in action:
            if action["exit"] < 0:
                os.kill(os.getpid(), -action["exit"])
            os._exit(action["exit"])

    def _default(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        thread: dict[str, Any] = {"id": params.get("threadId") or THREAD, "status": {"type": "idle"}, "turns": []}
        version = self._scenario.get("version", "0.171.0")
        answers: dict[str, Any] = {
            "initialize": {"userAgent": f"turnlog/{version} (peer)", "codexHome": "/nowhere"},
            "thread/start": {"thread": thread, "model": "peer-model"},
            "thread/resume": {"thread": thread, "model": "peer-model"},
            "thread/read": {"thread": thread},
            "thread/loaded/list": {"data": [THREAD], "nextCursor": None},
            "thread/list": {"data": [], "nextCursor": None},
            "account/read": {"account": None, "requiresOpenaiAuth": False},
        }
        if method == "thread/turns/list":
            turns = self._threads.get(str(params.get("threadId")))
            if turns is None:
                text = f"thread {params.get('threadId')} is not materialized yet"
                return {"error": {"code": -32600, "message": text}}
            data = turns if params.get("sortDirection") == "asc" else turns[::-1]
            return {"result": {"data": data[: params.get("limit", 25)], "nextCursor": None}}
        return {"result": answers.get(method, {})}

    def _write(self, message: dict[str, Any]) -> None:
        self._raw(json.dumps(message).encode())

    def _raw(self, line: bytes) -> None:
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()


def main(arguments: list[str]) -> int:
    """Play the scenario of the first argument."""
    path = Path(arguments[0])
    scenario = json.loads(path.read_text(encoding="utf-8"))
    if "--version" in arguments:
        print(f"codex-cli {scenario.get('version', '0.171.0')}")
        return 0
    if "no_app_server" in scenario:
        print(scenario["no_app_server"], file=sys.stderr)
        return 2
    return _Peer(scenario, path.with_name(f"{path.name}.received")).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
