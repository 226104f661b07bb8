"""What a person or a program sees of a turn while it runs. Listeners of ``drive``; none of them blocks the loop."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import anyio

from turnlog.surfaces.cli.ask import ANSWERS, at_terminal, forget_typed, read_line
from turnlog.surfaces.cli.output import columns, fit, json_text
from turnlog.surfaces.cli.sink import Sink
from turnlog.surfaces.cli.words import duration, one_line, safe, short_id

if TYPE_CHECKING:
    from turnlog.harness import Ask, ConversationEvent

_CLEAR: Final = "\r\x1b[K"
_MARKS: Final = {"completed": ("✓", "32"), "error": ("✗", "31"), "failed": ("✗", "31")}
_WAITING: Final = "waiting"
_QUESTION: Final = "  allow it? [o]nce, [a]lways, [r]eject: "


class Quiet:
    """Shows nothing but permission questions: for a stdout that is no terminal, and for ``--json``."""

    def __init__(self, sink: Sink, *, color: bool, ask: bool) -> None:
        self._sink = sink
        self._color = color
        self._may_ask = ask and at_terminal()
        self._asking = anyio.Lock()
        self.session_id: str | None = None

    def session(self, session_id: str, artifact_key: str) -> None:
        """Remember the conversation, for the words at the end."""
        self.session_id = session_id

    def event(self, event: ConversationEvent) -> None:
        """Take an event."""

    def notice(self, text: str) -> None:
        """Tell on stderr what turnlog does about something unusual."""
        self._line(f"turnlog: {one_line(text)}")

    async def permission(self, ask: Ask) -> str | None:
        """Ask the person at this terminal; the answer may come from another one meanwhile."""
        if not self._may_ask:
            name = short_id(self.session_id or "")
            self._line(f"turnlog: permission asked: {one_line(ask.action)}: {one_line(ask.detail, 300)}")
            self._line(f"hint: turnlog permit {name} {one_line(ask.id)} once|always|reject")
            return None
        async with self._asking:
            self._hold()
            try:
                return await self._answer(ask)
            except anyio.get_cancelled_exc_class():
                self._sink.err("\n  answered elsewhere\n")
                raise
            finally:
                self._release()

    async def _answer(self, ask: Ask) -> str | None:
        forget_typed(sys.stdin.fileno())
        self._sink.err(f"{self._paint('33', '?')} {one_line(ask.action)}: {one_line(ask.detail, 500)}\n")
        while True:
            self._sink.err(_QUESTION)
            line = await read_line(sys.stdin.fileno())
            if line is None:
                self._sink.err(
                    f"\n  left open: turnlog permit {short_id(self.session_id or '')} {one_line(ask.id)} …\n"
                )
                return None
            if line.lower() in ANSWERS:
                return ANSWERS[line.lower()]

    def _hold(self) -> None:
        """Stop showing other things while a question stands."""

    def _release(self) -> None:
        """Go on showing."""

    def _line(self, text: str) -> None:
        self._sink.err(f"{text}\n")

    def _paint(self, style: str, text: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self._color else text


class Lines(Quiet):
    """``--jsonl``: one conversation event per line (6.1.3), after one line that names the conversation."""

    def session(self, session_id: str, artifact_key: str) -> None:
        """Print the first line."""
        super().session(session_id, artifact_key)
        self._object({"type": "session", "session": session_id, "artifact_key": artifact_key})

    def event(self, event: ConversationEvent) -> None:
        """Print an event; members that are absent are left out."""
        members = {name: getattr(event, name) for name in event.__struct_fields__}
        self._object({name: value for name, value in members.items() if value is not None})

    def _object(self, value: dict[str, Any]) -> None:
        self._sink.out(f"{json_text(value)}\n")


class Screen(Quiet):
    """A terminal: text as it comes, each tool as one line with outcome and duration.

    While tools run, the bottom line says which; it is wiped before anything else is written.
    """

    def __init__(self, sink: Sink, *, color: bool, ask: bool) -> None:
        super().__init__(sink, color=color, ask=ask)
        self._at_start = True
        self._item: str | None = None
        self._running: dict[str, str] = {}
        self._status_shown = False
        self._held: list[ConversationEvent] | None = None

    def session(self, session_id: str, artifact_key: str) -> None:
        """Tell which conversation it is, before anything is sent."""
        super().session(session_id, artifact_key)
        self._running[_WAITING] = "waiting for the agent"
        self._line(self._paint("2", f"session {short_id(session_id)}"))

    def notice(self, text: str) -> None:
        """Tell on stderr what turnlog does about something unusual."""
        self._line(self._paint("2", f"turnlog: {one_line(text)}"))

    def event(self, event: ConversationEvent) -> None:
        """Show an event, or keep it while a question stands."""
        if self._held is not None:
            self._held.append(event)
            return
        if self._running.pop(_WAITING, None):
            self._wipe()
        if event.type == "text_delta" and event.content:
            self._text(event.content, str((event.item or {}).get("id")))
        elif event.type.startswith("item_") and (event.item or {}).get("kind") in {"tool", "command"}:
            self._tool(event.type, event.item or {})
        elif event.type == "error":
            self._line(f"{self._paint('31', '✗')} {one_line(event.message or event.code or 'error', 2000)}")
        elif event.type == "status_changed" and event.message:
            self.notice(event.message)

    def finish(self) -> None:
        """End the last line of text."""
        self._running.clear()
        self._wipe()
        self._fresh_line()

    def _text(self, content: str, item: str) -> None:
        text = safe(content)
        self._wipe()
        if self._item is not None and item != self._item:
            self._fresh_line()
            self._sink.out("\n")
        self._item = item
        if text:
            self._sink.out(text)
            self._at_start = text.endswith("\n")
        self._status()

    def _tool(self, kind: str, item: dict[str, Any]) -> None:
        name, summary = one_line(item.get("name") or "tool"), one_line(item.get("summary") or "", 200)
        identifier, label = str(item.get("id")), f"{name}  {summary}".rstrip()
        if kind != "item_completed":
            self._running[identifier] = label
            self._wipe()
            self._status()
            return
        self._running.pop(identifier, None)
        state = str(item.get("state") or "unknown")
        mark, style = _MARKS.get(state, ("•", "33"))
        took = duration(item.get("duration_ms"))
        words = "" if state == "completed" else f"  {one_line(state)}"
        tail = f"{words}  {took}"
        room = max(columns() - len(tail) - 3, 10)
        self._line(f"{self._paint(style, mark)} {fit(label, room)}{self._paint('2', tail)}")
        self._item = None if self._item is None else "after a tool"

    def _line(self, text: str) -> None:
        self._wipe()
        self._fresh_line()
        self._sink.err(f"{text}\n")
        self._status()

    def _fresh_line(self) -> None:
        if not self._at_start:
            self._sink.out("\n")
            self._at_start = True

    def _status(self) -> None:
        """Show on the bottom line what runs; never inside a line of text."""
        if self._running and self._at_start and self._color and self._held is None:
            label = next(reversed(self._running.values()))
            others = f" and {len(self._running) - 1} more" if len(self._running) > 1 else ""
            self._sink.err(self._paint("2", f"… {fit(label, max(columns() - len(others) - 4, 10))}{others}"))
            self._status_shown = True

    def _wipe(self) -> None:
        if self._status_shown:
            self._sink.err(_CLEAR)
            self._status_shown = False

    def _hold(self) -> None:
        self._wipe()
        self._fresh_line()
        self._held = []

    def _release(self) -> None:
        held, self._held = self._held or [], None
        for event in held:
            self.event(event)
