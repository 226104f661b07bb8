"""What the stub answers: the marker in the newest user text, and what was said since, decide alone.

Pure: no sockets, no clock. A dialect turns a request into a ``View`` and an ``Answer`` into its own events.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

import msgspec

MODES: Final = (
    *("text", "think", "tool", "tools2", "read", "subagent", "loop", "error500", "error400", "error401", "error529"),
    *("flaky429", "flaky500", "slow", "hang", "hanghdr", "cut", "length", "refusal", "inband"),
)
NEEDS_TOOL: Final = {"tool", "tools2", "read", "subagent", "loop"}
TEXT: Final = "stub answer"

_MARKER: Final = re.compile(r"\[\[stub:\s*([^\]]+?)\s*\]\]")
_PROSE: Final = {"text", "cmd", "prompt", "path"}
_HELPER_WORDS: Final = ("title", "topic")


class Pause(Enum):
    """Places inside a stream where the server does something other than send."""

    HANG = "hang"
    CUT = "cut"
    BEAT = "beat"


class Marker(msgspec.Struct, frozen=True):
    """``[[stub: MODE key=value …]]``; ``text`` is what stood inside, the key under which failures are counted."""

    mode: str = "text"
    text: str = "text"
    options: dict[str, str] = {}

    def prose(self, name: str, default: str) -> str:
        return self.options.get(name, default)

    def number(self, name: str, default: float) -> float:
        try:
            return float(self.options.get(name, default))
        except ValueError:
            return default


class View(msgspec.Struct, frozen=True):
    """One request as all dialects see it. ``results`` counts tool results after the newest user text."""

    user: str
    results: int
    tools: Mapping[str, Any]
    system: str


class Call(msgspec.Struct, frozen=True):
    """A tool call. ``namespace`` is Codex's group of tools, if the tool stands in one."""

    name: str
    arguments: dict[str, Any]
    namespace: str | None = None


class Think(msgspec.Struct, frozen=True):
    """Reasoning."""

    text: str


class Say(msgspec.Struct, frozen=True):
    """Text. ``pieces`` are streamed one by one; a Pause among them stops the stream there."""

    pieces: tuple[str | Pause, ...]

    @property
    def text(self) -> str:
        return "".join(piece for piece in self.pieces if isinstance(piece, str))


class Tokens(msgspec.Struct, frozen=True):
    """Disjoint counts of one model call; ``output`` includes ``reasoning``."""

    input: int = 1000
    cache_read: int = 400
    cache_write: int = 200
    output: int = 50
    reasoning: int = 20

    @property
    def prompt(self) -> int:
        """Everything sent."""
        return self.input + self.cache_read + self.cache_write


class Answer(msgspec.Struct, frozen=True):
    """What the model says. ``finish`` is ``stop``, ``tool`` or ``length``."""

    parts: tuple[Think | Say | Call, ...]
    finish: str = "stop"
    tokens: Tokens = Tokens()
    broken: bool = False
    """End with an error event inside the stream."""

    beat: float = 0.0
    """Seconds at each Pause.BEAT."""


class Failure(msgspec.Struct, frozen=True):
    """An HTTP error answer. ``retry_after`` is in seconds."""

    status: int
    retry_after: str | None = None

    @property
    def message(self) -> str:
        return f"stub error {self.status}"


def has_marker(text: str) -> bool:
    """Tell whether a text holds a marker."""
    return _MARKER.search(text) is not None


def find_marker(text: str) -> Marker:
    """Return the last marker of a text; without one, mode ``text``. Raises ValueError for an unknown mode."""
    found = _MARKER.findall(text)
    if not found:
        return Marker()
    words = found[-1].split()
    mode = next((word for word in words if "=" not in word), "text")
    options: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if equals:
            options[name] = value.replace("_", " ") if name in _PROSE else value
    if mode not in MODES:
        raise ValueError(f"unknown stub mode {mode!r}; known: {' '.join(MODES)}")
    return Marker(mode, found[-1], options)


def is_helper(view: View) -> bool:
    """Tell whether the agent only wants a name for the conversation."""
    system = view.system.lower()
    return not view.tools and any(word in system for word in _HELPER_WORDS)


def failure(marker: Marker, earlier: int) -> Failure | None:
    """Return the HTTP error of a mode. ``earlier`` counts the failures that this marker already got."""
    if marker.mode.startswith("error"):
        return Failure(int(marker.number("status", float(marker.mode.removeprefix("error")))))
    if marker.mode.startswith("flaky") and earlier < marker.number("fail", 1):
        status = int(marker.mode.removeprefix("flaky"))
        return Failure(status, marker.prose("after", "1") if status == 429 else None)  # noqa: PLR2004
    return None


def plan(marker: Marker, view: View) -> Answer:
    """Return the answer of a mode that answers."""
    parts, finish = _parts(marker, view)
    tokens = Tokens(
        input=int(marker.number("in", 1000)),
        cache_read=int(marker.number("cr", 400)),
        cache_write=int(marker.number("cw", 200)),
        output=int(marker.number("out", 50)),
        reasoning=int(marker.number("rs", 20)),
    )
    return Answer(parts, finish, tokens, broken=marker.mode == "inband", beat=marker.number("delay", 0.25))


def title() -> Answer:
    """Return the answer of a helper request; its tokens differ, so that it is seen where it is counted."""
    return Answer((_say("Stub title"),), tokens=Tokens(100, 0, 0, 5, 0))


def _parts(marker: Marker, view: View) -> tuple[tuple[Think | Say | Call, ...], str]:
    if marker.mode in NEEDS_TOOL:
        calls = _calls(marker, view)
        if calls:
            return calls, "tool"
    text = marker.prose("text", TEXT)
    if marker.mode == "think":
        return (Think("stub reasoning"), _say(text)), "stop"
    if marker.mode == "length":
        return (_say(text),), "length"
    if marker.mode == "refusal":
        return (), "stop"
    if marker.mode == "slow":
        words = range(int(marker.number("n", 40)))
        return (Say(tuple(piece for number in words for piece in (Pause.BEAT, f"w{number} "))),), "stop"
    if marker.mode in {"hang", "cut"}:
        first, *rest = thirds(text)
        return (Say((first, Pause(marker.mode), *rest)),), "stop"
    return (_say(text),), "stop"


def _calls(marker: Marker, view: View) -> tuple[Think | Say | Call, ...]:
    """Return the parts of an answer that calls tools; nothing when it is time for the final text."""
    if view.results >= (marker.number("n", 3) if marker.mode == "loop" else 1):
        return ()
    command = marker.prose("cmd", "echo hi")
    shell = _shell_call(view.tools, command)
    if marker.mode == "subagent":
        call = _subagent_call(view.tools, marker)
        return (_say("I will delegate."), call) if call else ()
    if marker.mode == "read":
        call = _read_call(view.tools, marker.prose("path", "/etc/hostname"))
        return (call,) if call else ()
    if shell is None:
        return ()
    if marker.mode == "tool":
        return _say("I will run it."), shell
    if marker.mode == "tools2":
        second = _shell_call(view.tools, f"{command} again")
        return (Think("two calls"), _say("Two calls."), shell, *((second,) if second else ()))
    return (shell,)


def _shell_call(tools: Mapping[str, Any], command: str) -> Call | None:
    for name in ("bash", "Bash"):
        if name in tools:
            return Call(name, {"command": command, "description": "stub shell call"})
    if "exec_command" in tools:
        return Call("exec_command", {"cmd": command})
    if "shell_command" in tools:
        return Call("shell_command", {"command": command})
    if "shell" in tools:
        return Call("shell", {"command": ["bash", "-lc", command]})
    return None


def _read_call(tools: Mapping[str, Any], path: str) -> Call | None:
    if "read" in tools:
        return Call("read", {"filePath": path})
    if "Read" in tools:
        return Call("Read", {"file_path": path})
    return _shell_call(tools, f"cat {path}")


def _subagent_call(tools: Mapping[str, Any], marker: Marker) -> Call | None:
    """Return the call that starts a subagent; ``sub=MODE`` makes it answer in that mode."""
    prompt = marker.prose("prompt", "sub agent prompt")
    if "sub" in marker.options:
        prompt = f"[[stub: {marker.options['sub']}]] {prompt}"
    arguments = {"description": "stub sub task", "prompt": prompt}
    if "task" in tools:
        return Call("task", {**arguments, "subagent_type": marker.prose("agent", "general")})
    for name in ("Agent", "Task"):
        if name in tools:
            return Call(name, {**arguments, "subagent_type": marker.prose("agent", "general-purpose")})
    for name in tools:
        namespace, slash, last = name.rpartition("/")
        if last == "spawn_agent":
            return Call("spawn_agent", {"message": prompt}, namespace if slash else None)
    return None


def _say(text: str) -> Say:
    return Say(tuple(thirds(text)))


def thirds(text: str) -> list[str]:
    """Cut a text into three pieces, as streams bring it."""
    size = max(1, -(-len(text) // 3))
    return [text[start : start + size] for start in range(0, len(text), size)] or [""]
