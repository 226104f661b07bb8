"""The scenarios of the harness suite, and a stage that plays them: what a scripted program says when.

A player of one provider says it in that provider's words (``harness_suite_opencode``, ``…_codex``, ``…_claude``).
Prompts name their scenario, ``<text>``; they are played one after the other by a thread of the stage. The folder is how
a test reaches a player in another process: a file ``release`` ends a hang, a file ``say`` holds lines to be said.
"""

from __future__ import annotations

import abc
import queue
import subprocess
import threading
from pathlib import Path
from typing import Any, Final

ANSWER: Final = "stub answer"
"""What a scenario with words for an answer ends in."""

SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}
VALUE: Final = {"a": 1}
"""The answer of the scenario ``structured``; it fits SCHEMA."""

SECRET: Final = "sk-0123456789abcdef01234567"  # noqa: S105 - it is made up, and must not come through
"""What the words of the scenario ``error`` hold: ``… Authorization: Bearer <SECRET> …``."""

SCENARIOS: Final = ("text", "tool", "steps", "loop", "error", "slow", "hang", "structured")
FAILURE: Final = f"the model refuses: Authorization: Bearer {SECRET}"
_POLL: Final = 0.01
_BEAT: Final = 0.05
_BEATS: Final = 600
_ROUNDS: Final = 400


def scenario_of(text: str) -> str:
    """Return the scenario that a prompt names."""
    return next((name for name in SCENARIOS if f"<{name}>" in text), "text")


class _Cut(Exception):  # noqa: N818 - nothing went wrong
    """What is played was stopped, or goes on with other words."""


class Stage(abc.ABC):
    """Plays prompts. A player implements what is abstract; it is called by the stage's thread only.

    ``made`` is the file that the scenario ``tool`` makes.
    """

    def __init__(self, folder: Path, made: Path) -> None:
        self.turn: str | None = None
        """The turn that is played now."""
        self.resting = threading.Event()
        """Set while no turn is played: one may have said its end and still be played for a moment."""
        self.resting.set()

        self._folder = folder
        self._made = made
        self._prompts: queue.Queue[tuple[str, str]] = queue.Queue()
        self._said = ""
        self._joined: tuple[str, str] | None = None
        self._tooling = False
        self._stop = threading.Event()
        self._closed = threading.Event()
        self._verdicts: queue.Queue[bool] = queue.Queue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    # --- what a program is told, from any thread --------------------------------------------------------------------

    def prompt(self, turn: str, text: str) -> None:
        """Take a prompt; it is played when the ones before are over."""
        self._prompts.put((turn, text))

    def interrupt(self) -> list[str]:
        """Stop the running turn and drop what waits; return the turns that were dropped."""
        dropped = []
        while not self._prompts.empty():
            dropped.append(self._prompts.get()[0])
        self._stop.set()
        return dropped

    def join(self, turn: str, text: str) -> None:
        """Take a prompt into the running turn, as soon as that waits for something."""
        self._joined = (turn, text)

    def steer(self, turn: str, text: str) -> None:
        """Take a prompt into the running turn when that uses tools, else keep it for later."""
        if self._tooling:
            self.join(turn, text)
        else:
            self.prompt(turn, text)

    def verdict(self, allowed: bool) -> None:  # noqa: FBT001 - it is the word itself
        """Take the answer to a question."""
        self._verdicts.put(allowed)

    def idle(self) -> bool:
        """Tell whether nothing is played and nothing waits."""
        return self.turn is None and self._prompts.empty()

    def close(self, *, finish: bool = False) -> None:
        """End the stage; ``finish`` what runs and waits before that."""
        if not finish:
            self._stop.set()
        self._closed.set()
        self._thread.join(10)

    # --- what a player says ------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def begins(self, turn: str) -> None:
        """Say that a turn began."""

    @abc.abstractmethod
    def piece(self, turn: str, text: str) -> None:
        """Say a piece of the answer."""

    @abc.abstractmethod
    def tool_begins(self, turn: str, call: int, command: str) -> None:
        """Say that a command is to be run."""

    @abc.abstractmethod
    def asks(self, turn: str, call: int, command: str) -> bool | None:
        """Ask whether a command may be run; None: asked, the verdict will come. Else what the policy says."""

    @abc.abstractmethod
    def tool_ends(self, turn: str, call: int, command: str, *, ran: bool) -> None:
        """Say that a command was run or not, and what the model call cost."""

    @abc.abstractmethod
    def ends(self, turn: str, status: str, text: str, *, structured: bool = False) -> None:
        """Say what the last model call cost, and that a turn ended: ``completed failed interrupted``.

        ``text`` is the answer, the words of the failure, or the part that was said.
        """

    @abc.abstractmethod
    def goes_on(self, turn: str, joined: str) -> str:
        """Say that a prompt was taken into the running turn; return the turn that goes on."""

    @abc.abstractmethod
    def says(self, line: str) -> None:
        """Say a line as it is."""

    # --- playing ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not (self._closed.is_set() and self._prompts.empty()):
            try:
                turn, text = self._prompts.get(timeout=_POLL)
            except queue.Empty:
                self._read_aloud()
                continue
            self.resting.clear()
            self.turn = turn
            self._stop.clear()
            self._verdicts = queue.Queue()
            self.begins(turn)
            self._perform(turn, text)
            self.turn = None
            self.resting.set()

    def _perform(self, turn: str, text: str) -> None:
        self._said, self._tooling = "", False
        try:
            self._play(turn, scenario_of(text))
        except _Cut:
            joined, self._joined = self._joined, None
            if joined is None:
                self.ends(turn, "interrupted", self._said)
                return
            self.turn = self.goes_on(turn, joined[0])
            self._perform(self.turn, joined[1])

    def _play(self, turn: str, scenario: str) -> None:
        if scenario == "error":
            self.ends(turn, "failed", FAILURE)
            return
        if scenario == "structured":
            self.ends(turn, "completed", "", structured=True)
            return
        if scenario == "slow":
            for number in range(_BEATS):
                self._say(turn, f"w{number} ")
                self._wait(_BEAT)
            self.ends(turn, "completed", self._said)
            return
        plans = {"tool": [f"touch {self._made}"], "steps": ["sleep 0.2"] * 2, "loop": ["sleep 0.1"] * _ROUNDS}
        commands = plans.get(scenario, [])
        for number, command in enumerate(commands):
            self._tooling = number + 1 < len(commands)
            self._tool(turn, number, command)
            if self._tooling:
                self._wait(0)
        self._say(turn, ANSWER[:4])
        while scenario == "hang" and not self._released():
            self._wait(_POLL)
        self._say(turn, ANSWER[4:])
        self.ends(turn, "completed", ANSWER)

    def _tool(self, turn: str, call: int, command: str) -> None:
        self.tool_begins(turn, call, command)
        allowed = self.asks(turn, call, command)
        while allowed is None:
            try:
                allowed = self._verdicts.get(timeout=_POLL)
            except queue.Empty:
                self._wait(0)
        if allowed:
            subprocess.run(["/bin/sh", "-c", command], check=True)
        self.tool_ends(turn, call, command, ran=allowed)

    def _say(self, turn: str, text: str) -> None:
        self._said += text
        self.piece(turn, text)

    def _wait(self, seconds: float) -> None:
        """Let time pass, unless the turn is to be cut."""
        if self._stop.wait(seconds) or self._joined is not None:
            raise _Cut

    def _released(self) -> bool:
        return self._take("release") is not None

    def _read_aloud(self) -> None:
        for line in (self._take("say") or "").splitlines():
            self.says(line)

    def _take(self, name: str) -> str | None:
        """Take away what a test put into the folder."""
        path = self._folder / name
        try:
            text = path.read_text(encoding="utf-8")
            path.unlink()
        except FileNotFoundError:
            return None
        return text


def put(folder: Path, name: str, text: str = "") -> None:
    """Put something into a stage's folder, whole or not at all."""
    temporary = folder / f"{name}.new"
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(folder / name)
