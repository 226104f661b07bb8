"""Permissions that Claude waits for (``can_use_tool``): our three policies, and the answers (providers.md §4; D20).

Under ``ask`` Claude decides what must be asked, with the rules of the user's own settings. Under ``deny`` nobody is
there: every tool that acts must ask (``ACTING``; such rules go before the user's), and is refused here. Under ``allow``
Claude asks nothing; should it all the same, the answer is yes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from turnlog.errors import InvalidError, RefusedError
from turnlog.harness import Ask, ConversationEvent
from turnlog.harness.claude.decode import one_line
from turnlog.harness.claude.events import tool_summary
from turnlog.receipts import canonical

POLICIES: Final = ("ask", "deny", "allow")
ANSWERS: Final = ("once", "always", "reject")
REFUSED: Final = "The user's policy does not allow this. Go on without it."
REJECTED: Final = "The user does not allow this. Go on without it, or say why it is needed."

ACTING: Final = (
    *("Bash", "Monitor", "Edit", "Write", "NotebookEdit", "WebFetch", "WebSearch", "Agent", "Task", "Skill"),
    *("Workflow", "EnterWorktree", "ExitWorktree", "CronCreate", "CronDelete", "ScheduleWakeup", "SendMessage"),
)
UNANSWERABLE: Final = ("AskUserQuestion", "EnterPlanMode", "ExitPlanMode")
"""Claude's own questions; nobody answers those through this harness."""

_DETAIL: Final = 500


class _Open(msgspec.Struct):
    ask: Ask
    given: Any
    suggestions: Any
    tool_call: Any
    answer: str | None = None


class Asks:
    """The open permissions of one process. Each is told once and answered once."""

    def __init__(self, thread: str, policy: str) -> None:
        self._thread = thread
        self._policy = policy
        self._open: dict[str, _Open] = {}

    def asked(self, name: str, request: Mapping[str, Any], turn: str | None) -> tuple[Ask, ConversationEvent]:
        """Take a new permission."""
        action, given = str(request.get("tool_name")), request.get("input")
        detail = tool_summary(given) or one_line(canonical(given))
        ask = Ask(name, self._thread, turn, action, detail[:_DETAIL])
        self._open[name] = _Open(ask, given, request.get("permission_suggestions"), request.get("tool_use_id"))
        evidence = {"id": name, "thread": self._thread, "action": action}
        return ask, ConversationEvent("permission_asked", turn_id=turn, message=ask.detail, evidence=evidence)

    def by_policy(self, name: str) -> dict[str, Any] | None:
        """Return the answer that the policy gives; None when a person is to be asked."""
        if self._policy == "ask":
            return None
        return self.answer(name, "once" if self._policy == "allow" else "reject", REFUSED)

    def answer(self, name: str, answer: str, message: str | None = None) -> dict[str, Any]:
        """Return the line that answers a permission. Raises RefusedError when it is not open (any more)."""
        if answer not in ANSWERS:
            raise InvalidError(f"unknown answer {answer!r}", hint="answer once, always or reject")
        found = self._open.get(name)
        if found is None or found.answer is not None:
            raise RefusedError(f"Claude does not wait for an answer to {name}", hint="it was answered or withdrawn")
        found.answer = answer
        if answer == "reject":
            reply: dict[str, Any] = {"behavior": "deny", "message": message or REJECTED}
        else:
            reply = {"behavior": "allow", "updatedInput": found.given}
            if answer == "always":
                reply["updatedPermissions"] = lasting(found.ask.action, found.suggestions)
        return {
            "type": "control_response",
            "response": {"subtype": "success", "request_id": name, "response": reply},
        }

    def unanswered(self, name: str) -> None:
        """An answer was certainly not delivered: it may be given again."""
        if name in self._open:
            self._open[name].answer = None

    def settled(self, name: str, status: str | None = None) -> list[ConversationEvent]:
        """Return the event of a permission that is no longer waited for; nothing when it was told before."""
        found = self._open.pop(name, None)
        if found is None:
            return []
        evidence = {"id": name}
        word = found.answer or status or "cancelled"
        return [ConversationEvent("permission_settled", turn_id=found.ask.turn, status=word, evidence=evidence)]

    def withdrawn(self) -> list[ConversationEvent]:
        """The process is another one: nothing is waited for."""
        return [event for name in list(self._open) for event in self.settled(name)]

    def tool_ended(self, call: Any) -> list[ConversationEvent]:
        """A tool has its result: whoever was asked about it need not answer any more."""
        return [
            event
            for name in [name for name, found in self._open.items() if found.tool_call == call]
            for event in self.settled(name)
        ]


def lasting(tool: str, suggestions: Any) -> list[dict[str, Any]]:
    """Return the rules for "always": what Claude suggests to allow, for this conversation only.

    Claude would write them into the project's settings; and it also suggests wider modes ("accept all edits"), which
    nobody was asked about. Without a suggested rule the tool itself is allowed.
    """
    rules = [
        {**each, "destination": "session"}
        for each in (suggestions if isinstance(suggestions, list) else ())
        if isinstance(each, dict) and each.get("type") == "addRules" and each.get("behavior") == "allow"
    ]
    return rules or [{"type": "addRules", "rules": [{"toolName": tool}], "behavior": "allow", "destination": "session"}]


def check_policy(policy: str) -> str:
    """Return the policy if it is one of ``ask deny allow``, else raise InvalidError."""
    if policy not in POLICIES:
        raise InvalidError(f"unknown permissions policy {policy!r}", hint=f"choose one of {', '.join(POLICIES)}")
    return policy
