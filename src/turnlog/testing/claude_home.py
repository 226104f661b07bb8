"""A hermetic home for Claude Code: its own HOME, the model stub as its only server, nothing that looks outside."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import orjson

MODEL = "claude-opus-5-5"
"""What Claude Code 2.1.332 chooses by itself."""


class ClaudeHome(msgspec.Struct, frozen=True):
    """Where a Claude of a test lives. ``env`` is what to add to its environment; ``work`` is a git folder."""

    root: Path
    work: Path
    state: Path
    env: dict[str, str]

    @property
    def config(self) -> Path:
        """Claude's own folder."""
        return self.root / "home" / ".claude"


def claude_home(root: Path, stub_url: str, *, settings: Any = None, retries: int = 2, login: bool = True) -> ClaudeHome:
    """Make the folders under ``root``. ``settings`` are the user's own; ``login`` gives a dummy key."""
    work, home, state = root / "work", root / "home", root / "state"
    for folder in (work, home / ".claude", state, root / "tmp"):
        folder.mkdir(parents=True, exist_ok=True)
    if settings is not None:
        (home / ".claude" / "settings.json").write_bytes(orjson.dumps(settings))
    git = shutil.which("git") or "git"
    subprocess.run([git, "init", "-q", str(work)], check=True, stdin=subprocess.DEVNULL)
    env = {
        "HOME": str(home),
        "CLAUDE_CONFIG_DIR": str(home / ".claude"),
        "CLAUDE_CODE_TMPDIR": str(root / "tmp"),
        "ANTHROPIC_BASE_URL": stub_url,
        "ANTHROPIC_API_KEY": "dummy" if login else "",
        "ANTHROPIC_AUTH_TOKEN": "",
        "CLAUDE_CODE_MAX_RETRIES": str(retries),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
    }
    program = installed()
    if program is not None:
        env["TURNLOG_CLAUDE_BIN"] = str(program)
    return ClaudeHome(root, work, state, env)


def installed() -> Path | None:
    """Return the program that ``make agents`` installed."""
    found = Path(__file__).resolve().parents[3].glob(".agents/claude/node_modules/@anthropic-ai/claude-code-*/claude")
    return max(found, default=None)
