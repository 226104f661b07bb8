"""turnlog at work on a real OpenCode and a stand-in for the model: ``make demo``.

    python -m turnlog.testing.demo [--keep]

Runs real ``turnlog`` commands in a temporary folder: a turn with a tool call; a turn whose engine is killed; recovery;
the next turn of the same conversation; then what the ledger tells. No account, no key, nothing leaves the machine.
Everything that was started is ended; the folder is removed unless ``--keep`` is given.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from typing import Final

from turnlog.testing.demo_stage import DemoError, Stage

WIDEST: Final = 100
_SHORT: Final = 12

FRUIT: Final = "3 apples\n4 pears\n"
COUNT: Final = "How many fruits? [[stub: tool cmd=cat_fruit.txt text=Seven.]]"
POEM: Final = "A poem! [[stub: hang text=Three_apples_and_four_pears_in_a_bowl_that_nobody_shares]]"
AGAIN: Final = "What happened? [[stub: text text=I_do_not_know._The_ledger_does.]]"

MEANINGS: Final = {
    0: "done",
    1: "failed",
    3: "done with problems",
    4: "refused",
    5: "uncertain: nobody said how it ended",
    130: "interrupted",
}


class Narrator:
    """Says what comes, on stdout, in the width of the terminal."""

    def __init__(self) -> None:
        self._color = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._width = min(shutil.get_terminal_size((WIDEST, 24)).columns, WIDEST)
        self._number = 0

    def title(self, text: str) -> None:
        """Print the first line."""
        self._print(self._paint("1", text))

    def chapter(self, heading: str, text: str = "") -> None:
        """Begin a numbered part."""
        self._number += 1
        line = f"── {self._number}. {heading} "
        self._print("\n" + self._paint("36", line + "─" * max(0, self._width - len(line))))
        self.say(text)

    def say(self, text: str, *, apart: bool = False) -> None:
        """Print prose, after an empty line if it stands apart."""
        if apart:
            self._print("")
        for line in textwrap.wrap(text, self._width):
            self._print(self._paint("2", line))

    def command(self, words: tuple[str, ...]) -> None:
        """Print a command line as a person types it."""
        self._print(self._paint("1;32", "$ ") + self._paint("1", shlex.join(["turnlog", *words])))

    def exit_code(self, code: int) -> None:
        """Print how a command left, when that is more than "done"."""
        if code:
            self._print(self._paint("33", f"(exit code {code}, {MEANINGS.get(code, 'an error')})"))

    def _paint(self, style: str, text: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self._color else text

    def _print(self, text: str) -> None:
        print(text, flush=True)


class Demo:
    """The play. Each step checks the exit code it must have: a demo that lies is worse than none."""

    def __init__(self, stage: Stage, narrator: Narrator) -> None:
        self._stage = stage
        self._tell = narrator

    def play(self) -> None:
        """Play everything."""
        tell, stage = self._tell, self._stage
        (stage.folder / "fruit.txt").write_text(FRUIT, encoding="utf-8")
        tell.say(
            f"A real OpenCode {stage.opencode_version()}, and a stand-in for its model on this machine: no key, no "
            "network. What stands in [[…]] tells the stand-in what to answer; all the rest is as on any day."
        )
        tell.chapter("A turn", "The agent calls a tool, then answers. Every fact becomes a receipt as it comes.")
        self._run("run", "--permissions", "allow", COUNT)
        counted = stage.newest_session()

        tell.chapter(
            "A turn that is killed",
            "The model falls silent in the middle of its answer. Once the ledger shows that the turn began, the demo "
            "kills OpenCode and everything in its process group: kill -9.",
        )
        killed: list[int] = []
        self._run("run", POEM, expect=5, meanwhile=lambda: killed.append(stage.kill_engine(counted)))
        poem = _short(stage.newest_session())
        tell.say(f"(Killed was process group {killed[0]}.) Whether the turn would have ended well, nobody can say.")

        tell.chapter(
            "Recovery",
            "A new OpenCode is asked for its own history of that turn. There is no end of it: the turn stays unknown. "
            "It is not sent again, and it is not called failed.",
        )
        self._run("recover", poem, expect=5)

        tell.chapter("The next turn", "The same conversation, the same OpenCode session, another process.")
        self._run("resume", poem, AGAIN)

        tell.chapter("What the ledger knows", "The receipts of that conversation, in the order in which they came:")
        self._run("history", poem)
        tell.say("What was asked, how it ended, what it cost. A dash is unknown, not zero:", apart=True)
        self._run("inputs")
        tell.say("The sums:", apart=True)
        self._run("usage", "session")
        tell.say("And everything recomputed from the receipts, and compared:", apart=True)
        self._run("verify")

    def _run(self, *words: str, expect: int = 0, meanwhile: Callable[[], None] | None = None) -> None:
        self._tell.command(words)
        code = self._stage.turnlog(*words, meanwhile=meanwhile)
        self._tell.exit_code(code)
        if code != expect:
            raise DemoError(
                f"`turnlog {words[0]}` left with {code} where {expect} was expected",
                "its own words are above; `turnlog doctor` checks the installation",
            )


def _short(session: str) -> str:
    return session.removeprefix("session_")[:_SHORT]


def main() -> int:
    """Play the demo and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m turnlog.testing.demo", description="Show turnlog at work on a real OpenCode and a model stub."
    )
    parser.add_argument("--keep", action="store_true", help="keep the folder with the ledger, to look around in it")
    keep = parser.parse_args().keep
    began = time.monotonic()
    tell = Narrator()
    try:
        with Stage(keep=keep) as stage:
            tell.title("turnlog demo")
            Demo(stage, tell).play()
        took = time.monotonic() - began
        if keep:
            tell.say(f"{took:.0f} s. Nothing runs any more. The ledger is still there; look around:", apart=True)
            print(f"export TURNLOG_LEDGER={shlex.quote(stage.url)}")
        else:
            tell.say(
                f"{took:.0f} s. Nothing runs any more, and the folder is gone. Your turn: turnlog run …", apart=True
            )
    except DemoError as error:
        print(f"demo: {error}\nhint: {error.hint}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted; everything that was started is ended", file=sys.stderr)
        return 130
    except (OSError, subprocess.SubprocessError) as error:
        print(f"demo: {error}\nhint: check the disk, the temporary folder, and that git is there", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
