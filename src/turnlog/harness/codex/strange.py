"""What we do not understand: kept, counted, bounded, and never fatal."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from turnlog.harness import Note
from turnlog.receipts import canonical
from turnlog.redact import sanitise, sanitise_value, strip_terminal
from turnlog.wire.jsonl import JsonlProblem
from turnlog.wire.jsonrpc import Message, Notification, Request

KINDS: Final = 50
"""Notes of one engine; what comes beyond is only counted."""

SAMPLE: Final = 2000
_MEMBERS: Final = 50
_DEPTH: Final = 6

_FAMILIES: Final = (
    *("account/", "app/", "autoApprovalReview/", "command/", "externalAgentConfig/", "fs/", "fuzzyFileSearch/"),
    *("hook/", "item/autoApprovalReview/", "mcpServer/", "model/", "modelProvider/", "process/", "project/"),
    *("remoteControl/", "skills/", "thread/attachment/", "thread/environment/", "thread/goal/", "thread/project/"),
    *("thread/queue/", "thread/realtime/", "thread/search/", "thread/section/", "windows/", "windowsSandbox/"),
)
_METHODS: Final = frozenset(
    {
        *("configWarning", "deprecationNotice", "error", "guardianWarning", "item/agentMessage/delta"),
        *("item/commandExecution/outputDelta", "item/commandExecution/terminalInteraction", "item/completed"),
        *("item/fileChange/outputDelta", "item/fileChange/patchUpdated", "item/mcpToolCall/progress"),
        *("item/plan/delta", "item/reasoning/summaryPartAdded", "item/reasoning/summaryTextDelta"),
        *("item/reasoning/textDelta", "item/started", "serverRequest/resolved", "thread/archived", "thread/closed"),
        *("thread/compacted", "thread/deleted", "thread/name/updated", "thread/prediction/updated"),
        *("thread/readState/changed", "thread/reverted", "thread/settings/updated", "thread/started"),
        *("thread/status/changed", "thread/tokenUsage/updated", "thread/unarchived", "turn/completed"),
        *("turn/diff/updated", "turn/moderationMetadata", "turn/plan/updated", "turn/started", "warning"),
    }
)


class Strangers:
    """Counts what is unknown and notes each kind of it once."""

    def __init__(self, thread: str) -> None:
        self.thread = thread
        self.counts: Counter[str] = Counter()
        self._noted: set[str] = set()

    def unreadable(self, problem: JsonlProblem) -> list[Note]:
        """Note a line that could not be read."""
        evidence = {
            "kind": problem.kind,
            "size": problem.size,
            "head": strip_terminal(sanitise(problem.head)),
            "why": problem.why or None,
        }
        return self._note(problem.sha256, problem.kind, evidence)

    def message(self, message: Message) -> list[Note]:
        """Note a message of a kind that Codex 0.171 did not have."""
        if isinstance(message, Notification):
            if message.method in _METHODS or message.method.startswith(_FAMILIES):
                return []
            return self._note(message.method, message.method, _sample(message.params))
        if isinstance(message, Request):
            return self._note(message.method, message.method, _sample(message.params))
        value = getattr(message, "value", None)
        return self._note("message", "message", _sample(value))

    def thread_of_nobody(self, thread: str, method: str) -> list[Note]:
        """Note a conversation that belongs to none we know."""
        return self._note(f"thread:{thread}", "thread", {"thread": thread, "method": method})

    def _note(self, name: str, kind: str, evidence: dict[str, Any]) -> list[Note]:
        self.counts[kind] += 1
        if name in self._noted or len(self._noted) >= KINDS:
            return []
        self._noted.add(name)
        return [Note(f"unknown:codex:{name[:200]}", self.thread, None, evidence)]


def _sample(value: Any) -> dict[str, Any]:
    clean = sanitise_value(_shortened(value, 0))
    text = strip_terminal(canonical(clean))
    return {"params": clean} if len(text) <= SAMPLE else {"params": f"{text[:SAMPLE]}… [cut]"}


def _shortened(value: Any, depth: int) -> Any:
    """Return a value with less in it: looking for secrets in many megabytes takes too long, and nobody reads them."""
    if isinstance(value, str):
        return value[: 2 * SAMPLE]
    if isinstance(value, list):
        return [_shortened(item, depth + 1) for item in value[:_MEMBERS]] if depth < _DEPTH else "…"
    if isinstance(value, dict):
        names = list(value)[:_MEMBERS]
        return {name[:SAMPLE]: _shortened(value[name], depth + 1) for name in names} if depth < _DEPTH else "…"
    return value
