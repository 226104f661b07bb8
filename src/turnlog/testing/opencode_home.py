"""A hermetic home for OpenCode: its own XDG folders, a stub provider, nothing that looks outside the machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import orjson

MODEL = "stub/stub-model"


class OpenCodeHome(msgspec.Struct, frozen=True):
    """Where an OpenCode of a test lives. ``env`` is what to add to its environment; ``work`` is a git folder."""

    root: Path
    work: Path
    state: Path
    env: dict[str, str]


def opencode_home(
    root: Path, stub_url: str, *, permission: Any = "allow", context: int = 128_000, git: bool = True
) -> OpenCodeHome:
    """Make the folders under ``root`` and write ``opencode.json`` with the stub as the only provider.

    ``permission`` is the user's own permission setting (a word for everything, or OpenCode's object); ``context`` the
    model's window in tokens (a small one makes OpenCode compact).
    """
    work, home, state = root / "work", root / "home", root / "state"
    for folder in (work, home, state):
        folder.mkdir(parents=True, exist_ok=True)
    model = {
        "name": "Stub Model",
        "limit": {"context": context, "output": min(8192, context // 4)},
        "tool_call": True,
        "reasoning": True,
        "cost": {"input": 1, "output": 10, "cache_read": 0.1, "cache_write": 1.25},
    }
    provider = {
        "npm": "@ai-sdk/openai-compatible",  # bundled: nothing is downloaded
        "name": "Stub",
        "options": {"baseURL": f"{stub_url}/v1", "apiKey": "dummy"},
        "models": {"stub-model": model},
    }
    config = {
        "autoupdate": False,
        "share": "disabled",
        "model": MODEL,
        "small_model": MODEL,
        "enabled_providers": ["stub"],
        "provider": {"stub": provider},
        "permission": {"*": permission} if isinstance(permission, str) else permission,
    }
    (work / "opencode.json").write_bytes(orjson.dumps(config, option=orjson.OPT_INDENT_2))
    if git:
        git_program = shutil.which("git") or "git"
        subprocess.run([git_program, "init", "-q", str(work)], check=True, stdin=subprocess.DEVNULL)
    env = {
        "HOME": str(home),
        "XDG_DATA_HOME": str(home / ".local" / "share"),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "XDG_STATE_HOME": str(home / ".local" / "state"),
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        "OPENCODE_DISABLE_SHARE": "1",
        "npm_config_registry": "http://127.0.0.1:9/",
        "npm_config_fetch_retries": "0",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
    }
    return OpenCodeHome(root, work, state, env)
