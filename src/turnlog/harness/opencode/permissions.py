"""What the agent may do: our three policies as OpenCode permission rules (6.2.1), and which asks are real.

How OpenCode decides (seen on 1.18.33): the last matching rule wins; the rules of the session come after those of the
agent, which hold the user's ``opencode.json``. So session rules hold against ``"permission": {"*": "allow"}``.
A subagent's session inherits only the *deny* rules of its parent and otherwise follows the agent's own rules: under
``ask`` a subagent would run commands unasked. Therefore an engine of ours gets the policy by environment too, and on
any engine the subagents whose own rules allow something are denied to an asking conversation.
"""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

from turnlog.errors import InvalidError
from turnlog.redact import strip_terminal

Rule = dict[str, str]

POLICIES: Final = ("ask", "deny", "allow")

# Nobody answers OpenCode's own questions and mode switches through this harness; they would hang the turn.
_UNANSWERABLE: Final = ("question", "plan_enter", "plan_exit")

_READING: Final = ("read", "glob", "grep", "list", "lsp", "todoread", "todowrite")

# Every permission OpenCode 1.18.33 knows by name: the environment must name each, for a user's file may too.
_KNOWN: Final = (
    *("bash", "codesearch", "doom_loop", "edit", "external_directory", "glob", "grep", "list", "lsp", "read", "skill"),
    *("task", "todoread", "todowrite", "webfetch", "websearch"),
)

# OpenCode allows itself its own folders in every ruleset.
_OWN_FOLDERS: Final = re.compile(r"(?:/opencode/|\.opencode/|tool-output/|plans/)")


def check_policy(policy: str) -> str:
    """Return the policy if it is one of ``ask deny allow``, else raise InvalidError."""
    if policy not in POLICIES:
        raise InvalidError(f"unknown permissions policy {policy!r}", hint=f"choose one of {', '.join(POLICIES)}")
    return policy


def session_rules(policy: str, agents: Any = None) -> list[Rule]:
    """Return the rules of a conversation. ``agents`` is the answer of ``GET /agent``, needed for ``ask``.

    ``ask``: everything is asked. ``deny``: nobody is there to ask, so reading inside the folder is allowed and
    everything else refused. ``allow``: everything is allowed.
    """
    if policy == "allow":
        rules = [_rule("*", "allow")]
    elif policy == "deny":
        rules = [
            _rule("*", "deny"),
            *(_rule(name, "allow") for name in _READING),
            *(_rule("read", "deny", pattern) for pattern in ("*.env", "*.env.*")),
            _rule("read", "allow", "*.env.example"),
        ]
    else:
        rules = [_rule("*", "ask"), *(_rule("task", "deny", name) for name in unasked_agents(agents))]
    return [*rules, *(_rule(name, "deny") for name in _UNANSWERABLE)]


def environment_rules(policy: str) -> dict[str, str]:
    """Return the environment that puts the policy under an engine of ours, for its subagents."""
    if policy != "ask":
        return {}
    return {"OPENCODE_PERMISSION": orjson.dumps(dict.fromkeys(("*", *_KNOWN), "ask")).decode()}


def unasked_agents(agents: Any) -> list[str]:
    """Return the names of subagents that may do something without being asked, by their own rules."""
    if not isinstance(agents, list):
        return ["*"]
    return sorted(
        str(agent["name"])
        for agent in agents
        if isinstance(agent, dict)
        and isinstance(agent.get("name"), str)
        and agent.get("mode") != "primary"
        and _allows_something(agent.get("permission"))
    )


def _allows_something(rules: Any) -> bool:
    if not isinstance(rules, list):
        return True
    allowed = True
    for rule in rules:
        if not isinstance(rule, dict):
            return True
        name, pattern, action = rule.get("permission"), rule.get("pattern"), rule.get("action")
        if name == "*" and pattern == "*":
            allowed = action == "allow"
        elif action == "allow" and not (name == "external_directory" and _OWN_FOLDERS.search(str(pattern))):
            allowed = True
    return allowed


def _rule(permission: str, action: str, pattern: str = "*") -> Rule:
    return {"permission": permission, "pattern": pattern, "action": action}


def ask_line(entry: dict[str, Any]) -> str:
    """Return one line for a person about a pending permission: what would be done."""
    metadata = entry.get("metadata")
    patterns = entry.get("patterns")
    words: list[str] = []
    if isinstance(metadata, dict):
        words = [
            str(metadata[name])
            for name in ("command", "filepath", "url", "description")
            if isinstance(metadata.get(name), str)
        ]
    if not words and isinstance(patterns, list):
        words = [str(pattern) for pattern in patterns]
    return strip_terminal(" ".join(" ".join(words).split()))[:500]
