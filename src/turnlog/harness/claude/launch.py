"""How Claude is started: program, arguments, environment (providers.md §4, §6)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import orjson

from turnlog.errors import UnavailableError
from turnlog.harness import HarnessConfig
from turnlog.harness._process import locate, parse_version, program_version
from turnlog.harness.claude.asks import ACTING, UNANSWERABLE
from turnlog.receipts import canonical

MINIMUM: Final = (2, 1, 0)

OFF_SWITCHES: Final = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    # Claude's own default is 10 tries, which keeps a turn without a usable key or server busy for minutes; with 6 it
    # gives up after about half a minute. The user's own value counts, as for every variable here.
    "CLAUDE_CODE_MAX_RETRIES": "6",
}


class Wish(msgspec.Struct, frozen=True):
    """What a process is started with besides the configuration; another wish needs another process."""

    schema: str | None = None
    system: str | None = None


def wish(system: str | None, schema: dict[str, Any] | bool | None) -> Wish:  # noqa: FBT001 - true and false are schemas
    """Return the wish of a request. Claude takes only objects as schemas."""
    if isinstance(schema, bool):
        schema = {} if schema else {"not": {}}
    return Wish(None if schema is None else canonical(schema), system)


def environment(config: HarnessConfig) -> dict[str, str]:
    """Return the environment of Claude: the user's, but for the off-switches."""
    variables = {**OFF_SWITCHES, **os.environ, **config.env}
    if config.permissions == "allow" and os.geteuid() == 0:
        # Claude skips permissions as root only with exactly this value, and the user allowed everything.
        variables["IS_SANDBOX"] = "1"
    return variables


def program(config: HarnessConfig, variables: Mapping[str, str]) -> Path:
    """Return the program. Raises UnavailableError when there is none."""
    return locate("claude", variables, cwd=config.cwd)


async def check_version(found: Path, variables: Mapping[str, str]) -> str:
    """Return the version a program tells. Raises UnavailableError when it tells none or is too old."""
    version = await program_version(found, variables)
    numbers = parse_version(version)
    if numbers is not None and numbers < MINIMUM:
        wanted = ".".join(map(str, MINIMUM))
        raise UnavailableError(
            f"Claude Code {version} at {found} is too old",
            hint=f"install Claude Code {wanted} or later (claude update)",
        )
    return version


def arguments(config: HarnessConfig, thread: str, wanted: Wish, *, resume: bool) -> list[str]:
    """Return the arguments for one process on one conversation."""
    found = [
        *("-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"),
        *("--include-partial-messages", "--replay-user-messages"),
        *(("--resume", thread) if resume else ("--session-id", thread)),
    ]
    if config.permissions == "allow":
        found.append("--dangerously-skip-permissions")
    else:
        # The mode is named, or the user's settings could choose one that asks nothing.
        found += ["--permission-mode", "default", "--permission-prompt-tool", "stdio"]
    if config.permissions == "deny":
        # Rules that ask go before the user's rules that allow; tools of MCP servers cannot be named here.
        rules = {"permissions": {"ask": list(ACTING)}}
        found += ["--settings", orjson.dumps(rules).decode(), "--strict-mcp-config"]
    found += ["--disallowedTools", ",".join(UNANSWERABLE)]
    if config.model is not None:
        found += ["--model", config.model]
    if wanted.system is not None:
        found += ["--append-system-prompt", wanted.system]
    if wanted.schema is not None:
        found += ["--json-schema", wanted.schema]
    return found
