"""Runs other counters, and turnlog itself, over a made-up history: seconds, memory, and the totals they give."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from tests.bench.corpus_truth import Truth

ROOT: Final = Path(__file__).resolve().parents[2]
TOOLS: Final = ROOT / ".agents" / "opponents"
CCUSAGE: Final = TOOLS / "node_modules" / ".bin" / "ccusage"
AGENTSVIEW: Final = TOOLS / "viewer" / "bin" / "agentsview"
SAMPLE_S: Final = 0.03

Totals = dict[str, int]
"""Tokens by ``input output cache_read cache_write`` as a program reports them."""


class Run(msgspec.Struct, frozen=True):
    """One run of a program. ``rss`` is the peak in bytes over the program and all it starts, added up."""

    seconds: float
    rss: int
    out: bytes
    code: int


def install() -> None:
    """Install the opponents; a bench without them has nothing to compare with, so it is skipped."""
    done = subprocess.run(["bash", str(ROOT / "tools" / "opponents.sh")], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"the opponents cannot be installed: {done.stderr.strip()[-300:]}")


def run(
    argv: Sequence[str], variables: Mapping[str, str], *, codes: tuple[int, ...] = (0,), watched: bool = True
) -> Run:
    """Run a program to its end and measure it. Memory is sampled (if ``watched``), so short peaks may be missed."""
    env = {"PATH": os.environ["PATH"], "TZ": "UTC", "LANG": "C.UTF-8", **variables}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        begin = time.perf_counter()
        process = subprocess.Popen(list(argv), env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=errors)
        peak = _Peak(process.pid) if watched else None
        code = process.wait()
        seconds = time.perf_counter() - begin
        rss = 0 if peak is None else peak.end()
        out.seek(0)
        errors.seek(0)
        assert code in codes, f"{argv}: exit {code}\n{errors.read()[-2000:].decode(errors='replace')}"
        return Run(seconds, rss, out.read(), code)


class _Peak:
    """Samples a process tree."""

    def __init__(self, pid: int) -> None:
        self._most = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, args=(pid,), daemon=True)
        self._thread.start()

    def end(self) -> int:
        self._stop.set()
        self._thread.join()
        return self._most

    def _watch(self, pid: int) -> None:
        while not self._stop.wait(SAMPLE_S):
            self._most = max(self._most, sum(_resident(each) for each in _tree(pid)))


def _tree(pid: int) -> list[int]:
    """Return a process and all it started; by the kernel's own list, because walking all processes is slow."""
    found, waiting = [], [pid]
    while waiting:
        found.append(waiting.pop())
        for tasks in Path(f"/proc/{found[-1]}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                waiting += map(int, tasks.read_text().split())
    return found


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError):
        return 0  # it ended


def fastest(argv: Sequence[str], variables: Mapping[str, str], times: int = 4) -> Run:
    """Return the fastest of several runs, what the machine can do when nobody disturbs it; memory is another run's."""
    best = min((run(argv, variables, watched=False) for _ in range(times)), key=lambda each: each.seconds)
    return msgspec.structs.replace(best, rss=run(argv, variables).rss)


def turnlog(*words: str) -> list[str]:
    """Return the command line of turnlog in this environment."""
    return [str(Path(sys.executable).with_name("turnlog")), *words]


def ccusage(truth: Truth) -> tuple[Run, Totals]:
    """Run ccusage's daily report over everything, offline."""
    argv = [str(CCUSAGE), "daily", "--json", "--offline", "--timezone", "UTC"]
    found = fastest(argv, truth.variables)
    return found, _spelled(msgspec.json.decode(found.out)["totals"])


def agentsview(truth: Truth, data: Path) -> tuple[Run, Totals]:
    """Run agentsview's first sync into ``data``, once, and read its totals."""
    data.mkdir(parents=True)
    variables = {
        **truth.variables,
        "AGENTSVIEW_NO_DAEMON": "1",
        "AGENTSVIEW_DATA_DIR": str(data),
        "AGENTSVIEW_TELEMETRY_ENABLED": "0",
        "AGENTSVIEW_DISABLE_UPDATE_CHECK": "1",
        "CLAUDE_PROJECTS_DIR": f"{truth.folder}/claude/projects",
        "CODEX_SESSIONS_DIR": f"{truth.folder}/codex/sessions",
        "OPENCODE_DIR": f"{truth.folder}/data/opencode",
    }
    found = run([str(AGENTSVIEW), "sync"], variables)
    words = ["usage", "daily", "--all", "--json", "--offline", "--no-sync", "--timezone", "UTC"]
    report = run([str(AGENTSVIEW), *words], variables)
    return found, _spelled(msgspec.json.decode(report.out)["totals"])


def _spelled(totals: Mapping[str, Any]) -> Totals:
    return {
        "input": totals["inputTokens"],
        "output": totals["outputTokens"],
        "cache_read": totals["cacheReadTokens"],
        "cache_write": totals["cacheCreationTokens"],
    }
