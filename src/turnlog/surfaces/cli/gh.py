"""The title of an issue or pull request of GitHub, asked of the ``gh`` program where a person wants that."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from typing import TYPE_CHECKING, Final

from turnlog.surfaces.cli.words import note, one_line

if TYPE_CHECKING:
    from turnlog.history.external import External

TIMEOUT_S: Final = 5.0
_TITLE: Final = 300


def ask_title(named: External) -> str | None:
    """Return the title of what is named, or None with a note that says why; nothing depends on it."""
    if not named.kind.startswith("github"):
        note(f"no title: {one_line(named.identifier)} is not of GitHub")
        return None
    # Never the working directory: an agent may have put a program there.
    places = [place for place in os.environ.get("PATH", "").split(os.pathsep) if os.path.isabs(place)]  # noqa: PTH117
    program = shutil.which("gh", path=os.pathsep.join(places))
    if program is None:
        note("no title: the gh program is not there")
        return None
    repository, _, number = named.external_id.removeprefix("github:").partition("#")
    told = _run([program, "api", f"repos/{repository}/issues/{number}", "--jq", ".title"])
    title = None if told is None else one_line(told, _TITLE)
    if told is not None and not title:
        note("no title: gh told nothing")
    return title or None


def _run(command: list[str]) -> str | None:
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "GH_PROMPT_DISABLED": "1", "NO_COLOR": "1"},
            start_new_session=True,
        )
    except OSError as error:
        note(f"no title: gh does not start: {error.strerror}")
        return None
    with child:
        try:
            out, err = child.communicate(timeout=TIMEOUT_S)
        except BaseException as error:
            # With its children: one of them could hold the pipes open for ever.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            note(f"no title: gh did not answer within {TIMEOUT_S:g} s")
            return None
    if child.returncode:
        note(f"no title: gh failed: {one_line(err.decode(errors='replace'), 200) or child.returncode}")
        return None
    return out.decode(errors="replace")
