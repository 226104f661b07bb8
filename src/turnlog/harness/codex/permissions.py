"""What the agent may do: our three policies in Codex's words, and what becomes of each thing it asks.

How Codex decides (seen on 0.171): under ``untrusted`` every command is asked, ``ls`` too; what a person accepts runs
*outside* the sandbox. Under ``on-request`` commands run in the sandbox unasked. A subagent inherits both settings.
``acceptForSession`` works although a command's ``availableDecisions`` does not list it;
``acceptWithExecpolicyAmendment`` would write a lasting rule into the user's CODEX_HOME, so it is never sent.
"""

from __future__ import annotations

from typing import Any, Final

from turnlog.errors import InvalidError
from turnlog.wire.jsonrpc import Request

POLICIES: Final = ("ask", "deny", "allow")
ANSWERS: Final = ("once", "always", "reject")

COMMAND: Final = "item/commandExecution/requestApproval"
FILES: Final = "item/fileChange/requestApproval"
MORE: Final = "item/permissions/requestApproval"
ELICIT: Final = "mcpServer/elicitation/request"
QUESTION: Final = "item/tool/requestUserInput"
ASKED: Final = (COMMAND, FILES, MORE, ELICIT)
"""Requests that are a permission question."""


def check_policy(policy: str) -> str:
    """Return the policy if it is one of ``ask deny allow``, else raise InvalidError."""
    if policy not in POLICIES:
        raise InvalidError(f"unknown permissions policy {policy!r}", hint=f"choose one of {', '.join(POLICIES)}")
    return policy


def settings(policy: str) -> dict[str, Any]:
    """Return what a policy means for ``thread/start`` and ``thread/resume``.

    ``ask``: every command and file change is asked; what is accepted is done without a sandbox, what is not asked
    cannot write. ``deny``: the same, and nobody is there, so everything asked is declined: the agent can think, look
    at what Codex shows it by itself, and answer. ``allow``: everything is done, without questions and without a
    sandbox; whoever says it means it. The reviewer is always the user: no second model answers for us.
    """
    if policy == "allow":
        return {"approvalPolicy": "never", "sandbox": "danger-full-access", "approvalsReviewer": "user"}
    return {"approvalPolicy": "untrusted", "sandbox": "read-only", "approvalsReviewer": "user"}


def action(request: Request) -> str:
    """Return the short name of what is asked."""
    return {COMMAND: "command", FILES: "file_change", MORE: "permissions", ELICIT: "mcp"}[request.method]


def ask_line(request: Request, about: dict[str, Any] | None) -> str:
    """Return one line for a person: what would be done. ``about`` is the item that asks, when it is known."""
    params = request.params
    words: list[str] = []
    if isinstance(params.get("command"), str):
        words.append(params["command"])
    changes = about.get("changes") if about is not None and request.method == FILES else None
    changes = changes if isinstance(changes, list) else []
    words += [str(change["path"]) for change in changes if isinstance(change, dict) and change.get("path")]
    words += [str(params[name]) for name in ("grantRoot", "serverName", "message", "url") if params.get(name)]
    if request.method == MORE and isinstance(params.get("permissions"), dict):
        words.append(", ".join(sorted(name for name, value in params["permissions"].items() if value)))
    if isinstance(params.get("reason"), str):
        words.append(f"({params['reason']})")
    return " ".join(" ".join(words).split())[:500]


def reply(request: Request, answer: str) -> dict[str, Any]:
    """Return the result that gives an answer: ``once``, ``always`` or ``reject``."""
    params = request.params
    if request.method == MORE:
        if answer == "reject":
            return {"permissions": {}}
        return {"permissions": params.get("permissions"), "scope": "session" if answer == "always" else "turn"}
    if request.method == ELICIT:
        # Only a form that demands nothing can be accepted by a yes; Codex asks MCP tool calls in this shape.
        wanted = params.get("requestedSchema")
        demands = not isinstance(wanted, dict) or wanted.get("required") or params.get("mode") == "url"
        return {"action": "decline"} if answer == "reject" or demands else {"action": "accept", "content": {}}
    if answer == "reject":
        return {"decision": "decline"}
    # A single input to a running terminal, or a checkpoint that wants a fresh decision, is accepted once.
    lasting = answer == "always" and params.get("kind", "command") == "command"
    return {"decision": "acceptForSession" if lasting else "accept"}
