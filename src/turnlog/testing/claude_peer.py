"""A scripted stand-in for the ``claude`` program, for what the real one cannot be made to show.

    env["TURNLOG_CLAUDE_BIN"] = str(claude_peer(folder, [wait("user"), say(type="result", …)], version="2.1.197"))

It speaks stream-json on stdin and stdout. ``initialize`` is answered by itself. In what is said, ``$session`` stands
for the session id, ``$uuid`` for the uuid of the newest user line, ``$uuid1`` for that of the first, ``$request`` for
the id of the newest control request. After the last step it waits for the end of its input.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, Final

import orjson

Step = dict[str, Any]
_FLOOD: Final = b"a warning that nobody reads\n" * 40


def say(**line: Any) -> Step:
    """Print a line."""
    return {"say": line}


def wait(kind: str) -> Step:
    """Read lines until one of this type, or a control request of this subtype, came."""
    return {"wait": kind}


def raw(text: str) -> Step:
    """Print a line that need not be JSON."""
    return {"raw": text}


def long_line(size: int) -> Step:
    """Print a line of that many bytes."""
    return {"long": size}


def flood(size: int) -> Step:
    """Write that many bytes to stderr."""
    return {"flood": size}


def leave(code: int, words: str = "") -> Step:
    """Write words to stderr and exit."""
    return {"leave": code, "words": words}


def claude_peer(
    folder: Path, steps: list[Step], *, version: str = "2.1.332", ready: bool = True, deaf: bool = False
) -> Path:
    """Write the program into ``folder`` and return its path.

    ``ready``: it answers to ``initialize``. ``deaf``: it ignores SIGTERM and the end of its input. Its arguments are
    kept in ``argv.json`` beside it, what it read in ``read.jsonl``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    script = {"version": version, "steps": steps, "ready": ready, "deaf": deaf}
    (folder / "script.json").write_bytes(orjson.dumps(script))
    program = folder / "claude"
    program.write_text(
        f"#!{sys.executable}\nfrom pathlib import Path\nfrom turnlog.testing.claude_peer import main\n"
        f"main(Path({str(folder)!r}))\n",
        encoding="utf-8",
    )
    program.chmod(0o700)
    return program


class _Peer:
    def __init__(self, folder: Path, script: dict[str, Any]) -> None:
        self._read = (folder / "read.jsonl").open("ab", buffering=0)
        self._ready = script["ready"]
        self._deaf = script["deaf"]
        argv = sys.argv[1:]
        named = next((argv[at + 1] for at, word in enumerate(argv) if word in {"--session-id", "--resume"}), "")
        self._words = {"$session": named}

    def run(self, steps: list[Step]) -> None:
        if self._deaf:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self._ready:
            self._wait("initialize")
            self._say({"type": "control_response", "response": {"subtype": "success", "request_id": "$request"}})
        for step in steps:
            self._do(step)
        self._wait("")

    def _do(self, step: Step) -> None:
        match step:
            case {"say": line}:
                self._say(line)
            case {"wait": kind}:
                self._wait(kind)
            case {"raw": text}:
                self._out(text.encode())
            case {"long": size}:
                self._out(b'{"type":"long","text":"' + b"x" * size + b'"}')
            case {"flood": size}:
                for _ in range(size // len(_FLOOD)):
                    sys.stderr.buffer.write(_FLOOD)
                sys.stderr.buffer.flush()
            case {"leave": code, "words": words}:
                sys.stderr.write(words)
                sys.stderr.flush()
                os._exit(code)

    def _wait(self, kind: str) -> None:
        while (line := self._line()) is not None:
            if line.get("type") == kind or (line.get("request") or {}).get("subtype") == kind:
                return
        while self._deaf:
            time.sleep(1)
        sys.exit(0)

    def _line(self) -> dict[str, Any] | None:
        text = sys.stdin.buffer.readline()
        if not text.endswith(b"\n"):
            return None
        self._read.write(text)
        line: dict[str, Any] = orjson.loads(text)
        if line.get("type") == "user":
            self._words["$uuid"] = line["uuid"]
            self._words.setdefault("$uuid1", line["uuid"])
        if line.get("type") == "control_request":
            self._words["$request"] = line["request_id"]
        return line

    def _say(self, line: dict[str, Any]) -> None:
        text = orjson.dumps(line).decode()
        for word in sorted(self._words, reverse=True):
            text = text.replace(word, self._words[word])
        self._out(text.encode())

    def _out(self, line: bytes) -> None:
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()


def main(folder: Path) -> None:
    """Play the script of a folder."""
    script = orjson.loads((folder / "script.json").read_bytes())
    if sys.argv[1:] == ["--version"]:
        print(f"{script['version']} (Claude Code)")
        return
    (folder / "argv.json").write_bytes(orjson.dumps(sys.argv[1:]))
    _Peer(folder, script).run(script["steps"])
