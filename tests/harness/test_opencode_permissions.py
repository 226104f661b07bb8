"""Policies as rules, and subagents that would act unasked."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

import msgspec
import pytest

from turnlog.harness.opencode.permissions import ask_line, environment_rules, session_rules, unasked_agents


def rule(permission: str, action: str, pattern: str = "*") -> dict[str, str]:
    return {"permission": permission, "pattern": pattern, "action": action}


def verdict(rules: list[dict[str, str]], permission: str, target: str = "x") -> str:
    """Decide as OpenCode does: the last rule that matches."""
    found = "ask"
    for item in rules:
        if item["permission"] in {"*", permission} and fnmatchcase(target, item["pattern"]):
            found = item["action"]
    return found


@pytest.mark.parametrize(
    ("policy", "permission", "target", "expected"),
    [
        ("ask", "bash", "ls", "ask"),
        ("ask", "read", "a.py", "ask"),
        ("ask", "mcp_tool", "x", "ask"),
        ("deny", "bash", "ls", "deny"),
        ("deny", "edit", "a.py", "deny"),
        ("deny", "mcp_tool", "x", "deny"),
        ("deny", "task", "general", "deny"),
        ("deny", "external_directory", "/etc", "deny"),
        ("deny", "read", "a.py", "allow"),
        ("deny", "read", "x/.env", "deny"),
        ("deny", "read", ".env.local", "deny"),
        ("allow", "bash", "ls", "allow"),
        ("ask", "question", "x", "deny"),
        ("allow", "question", "x", "deny"),
        ("allow", "plan_exit", "x", "deny"),
    ],
)
def test_policies(policy: str, permission: str, target: str, expected: str) -> None:
    assert verdict(session_rules(policy, []), permission, target) == expected


AGENTS: list[dict[str, Any]] = [
    {"name": "build", "mode": "primary", "permission": [rule("*", "allow")]},
    {"name": "free", "mode": "subagent", "permission": [rule("*", "ask"), rule("bash", "allow", "git *")]},
    {"name": "all", "mode": "all", "permission": [rule("*", "allow")]},
    {"name": "unset", "mode": "subagent", "permission": []},
    {"name": "strange", "mode": "subagent"},
    {
        "name": "safe",
        "mode": "subagent",
        "permission": [
            rule("*", "allow"),
            rule("*", "deny"),
            rule("bash", "allow"),
            rule("*", "ask"),
            rule("external_directory", "allow", "/home/u/.local/share/opencode/tool-output/*"),
        ],
    },
]


def test_subagents_that_act_unasked_are_denied_to_an_asking_conversation() -> None:
    assert unasked_agents(AGENTS) == ["all", "free", "strange", "unset"]
    rules = session_rules("ask", AGENTS)
    assert verdict(rules, "task", "safe") == "ask"
    assert rule("task", "deny", "free") in rules
    assert verdict(session_rules("ask", None), "task", "safe") == "deny", "unknown agents are not trusted"


def test_the_environment_names_every_permission() -> None:
    rules = msgspec.json.decode(environment_rules("ask")["OPENCODE_PERMISSION"])
    assert set(rules.values()) == {"ask"}
    assert {"*", "bash", "edit", "external_directory", "task", "webfetch"} <= set(rules)
    assert environment_rules("deny") == environment_rules("allow") == {}


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        ({"metadata": {"command": "a\n b"}, "patterns": ["x"]}, "a b"),
        ({"metadata": {"filepath": "/etc/x", "parentDir": "/etc"}}, "/etc/x"),
        ({"metadata": {}, "patterns": ["a", "b"]}, "a b"),
        ({}, ""),
        ({"metadata": {"command": "x\x1b[31m" * 2}}, "xx"),
    ],
)
def test_an_ask_is_one_line_for_a_person(entry: dict[str, Any], line: str) -> None:
    assert ask_line(entry) == line
