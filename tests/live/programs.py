"""The three programs with hermetic homes, so that one test can say the same of each."""

from __future__ import annotations

from pathlib import Path

from tests.live.cli import Cli
from turnlog.testing.claude_home import claude_home
from turnlog.testing.codex_home import codex_home
from turnlog.testing.opencode_home import opencode_home
from turnlog.testing.stub_llm import StubLlm

PROVIDERS = ("opencode", "codex", "claude")


def command_line(provider: str, root: Path, stub: StubLlm, *, asks: bool = False) -> Cli:
    """``turnlog`` for one provider on a fresh ledger; with ``asks`` the user's own settings ask for permission."""
    if provider == "opencode":
        opencode = opencode_home(root, stub.url, permission="ask" if asks else "allow")
        return Cli(root, opencode.work, opencode.env, provider)
    if provider == "codex":
        codex = codex_home(root, stub.url)
        return Cli(root, codex.work, codex.env, provider)
    claude = claude_home(root, stub.url)
    return Cli(root, claude.work, {**claude.env, "IS_SANDBOX": "1"}, provider)
