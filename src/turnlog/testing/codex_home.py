"""A hermetic home for Codex: its own CODEX_HOME, the stub as the only model provider, nothing outside the machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import msgspec

MODEL = "stub-model"


class CodexHome(msgspec.Struct, frozen=True):
    """Where a Codex of a test lives. ``env`` is what to add to its environment; ``work`` is a git folder."""

    root: Path
    work: Path
    home: Path
    env: dict[str, str]

    def state(self, name: str) -> Path:
        """Return the state folder of one conversation."""
        return self.root / "state" / name


_CONFIG = """\
model = "{model}"
model_provider = "stub"
approval_policy = "{approval}"
sandbox_mode = "{sandbox}"
check_for_update_on_startup = false

[model_providers.stub]
name = "Stub"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "STUB_KEY"
request_max_retries = 1
stream_max_retries = 1
stream_idle_timeout_ms = 30000

[analytics]
enabled = false

[features]
plugins = false
apps = false
remote_plugin = false
unbounded_connection_retries = false
"""


def codex_home(
    root: Path, stub_url: str, *, approval: str = "never", sandbox: str = "danger-full-access", git: bool = True
) -> CodexHome:
    """Make the folders under ``root`` and write ``config.toml``; ``approval`` and ``sandbox`` are the user's own.

    Short retries: a refused or broken call fails within seconds.
    """
    work, home = root / "work", root / "home"
    for folder in (work, home):
        folder.mkdir(parents=True, exist_ok=True)
    text = _CONFIG.format(model=MODEL, approval=approval, sandbox=sandbox, url=stub_url)
    (home / "config.toml").write_text(text, encoding="utf-8")
    if git:
        git_program = shutil.which("git") or "git"
        subprocess.run([git_program, "init", "-q", str(work)], check=True, stdin=subprocess.DEVNULL)
    env = {
        "HOME": str(home),
        "CODEX_HOME": str(home),
        "STUB_KEY": "dummy",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
    }
    return CodexHome(root, work, home, env)
