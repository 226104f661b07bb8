"""From argv to one command and its exit code; the one place where errors become words (contract §2).

Neither ``--version`` nor ``--help`` imports more than this file: start-up speed is a feature. Commands are made from
plain functions; the three global options are added to each, so that they may stand before or after its name.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from keyword import iskeyword
from typing import Final

from turnlog.errors import InvalidError, TurnlogError
from turnlog.surfaces.cli.context import Cli, Globals
from turnlog.surfaces.cli.words import report_failure

PACKAGE: Final = "turnlog.surfaces.cli"

COMMANDS: Final[dict[str, tuple[str, str, str]]] = {
    # name: (module, heading, what it does)
    "run": ("run", "Drive", "Begin a conversation: one turn, recorded"),
    "resume": ("run", "Drive", "Next turn in the same conversation"),
    "steer": ("requests", "Drive", "Say something into the running turn"),
    "interrupt": ("requests", "Drive", "Stop the running turn"),
    "permit": ("requests", "Drive", "Answer a permission question"),
    "recover": ("recover", "Drive", "Look unfinished turns up in the provider's history"),
    "ps": ("ps", "Drive", "What runs now, and what was left behind"),
    "work wave create": ("work_wave", "Work", "A standing area of work"),
    "work wave list": ("work_wave", "Work", "List waves"),
    "work wave show": ("work_wave", "Work", "One wave with what lies in it"),
    "work wave retire": ("work_wave", "Work", "A wave takes no new work any more"),
    "work project create": ("work_project", "Work", "A project in a wave"),
    "work project list": ("work_project", "Work", "List projects"),
    "work project show": ("work_project", "Work", "One project with its tasks"),
    "work project retire": ("work_project", "Work", "A project takes no new work any more"),
    "work task create": ("work_task", "Work", "A task in a project, from an issue's link or key"),
    "work task list": ("work_task", "Work", "List tasks"),
    "work task show": ("work_task", "Work", "One task: pull requests, conversations"),
    "work task pr": ("work_task", "Work", "Add a pull request to a task"),
    "work task worktree": ("work_task", "Work", "Where a task is worked on"),
    "work task retire": ("work_task", "Work", "A task takes no new work any more"),
    "bind": ("bind", "Work", "Say for good which task a conversation is for"),
    "activity": ("activity", "Read", "What was recorded lately"),
    "sessions": ("sessions", "Read", "List conversations"),
    "show": ("show", "Read", "Facts, turns and usage of one conversation"),
    "history": ("history", "Read", "Receipts of one conversation, in order"),
    "answer": ("answer", "Read", "Final answer of a conversation or input"),
    "inputs": ("inputs", "Read", "What was asked lately, and what it cost"),
    "search": ("search", "Read", "Find what was said in imported conversations"),
    "export": ("export", "Read", "A conversation as Markdown, web page or JSON lines"),
    "watch": ("watch", "Read", "Receipts of all conversations as they are recorded"),
    "usage": ("usage", "Read", "Tokens and cost by day, week, month, session, model, project, task"),
    "usage explain": ("usage_explain", "Read", "What stands behind a sum: streams, receipts, bytes of files"),
    "usage statusline": ("statusline", "Read", "One line for a status bar, in a few milliseconds"),
    "import": ("importing", "Care", "Read the histories that agents leave on disk into the ledger"),
    "ledger backup": ("ledger", "Care", "Copy the ledger to a file while others write"),
    "ledger copy": ("ledger_moving", "Care", "Copy a whole ledger into an empty one, SQLite or PostgreSQL"),
    "ledger push": ("ledger_moving", "Care", "Tell a team's ledger what is new in this one"),
    "prune": ("prune", "Care", "Drop old transcripts, or a whole conversation; totals stay"),
    "verify": ("verify", "Care", "Check the ledger against itself"),
    "doctor": ("doctor", "Care", "Check the installation and find agents"),
}

USAGE: Final = "usage: turnlog [--ledger URL] [--json] [--no-color] COMMAND …"


def run(argv: Sequence[str]) -> int:
    """Run one command line; return its exit code. Nothing but an exit code leaves this function."""
    as_json = "--json" in _before_separator(argv)
    _settle_streams()
    try:
        code = _dispatch(list(argv))
        sys.stdout.flush()
    except BrokenPipeError:
        from turnlog.surfaces.cli.sink import silence

        silence(sys.stdout)  # ``| head``
        return 0
    except TurnlogError as error:
        return report_failure(error.message, error.hint, error.code, error.exit_code, as_json=as_json)
    except KeyboardInterrupt:
        return report_failure("interrupted", "nothing is half-written", "interrupted", 130, as_json=as_json)
    except Exception as error:  # noqa: BLE001 - the last line of defence: no traceback reaches a person
        return _unexpected(error, as_json=as_json)
    return code


def is_report(argv: Sequence[str]) -> bool:
    """Tell whether a command line asks for a report: when that is printed, nothing is left to be done."""
    try:
        return _globals(list(argv))[1][:1] == ["usage"]
    except InvalidError:
        return False


def _dispatch(argv: list[str]) -> int:
    globals_, rest = _globals(argv)
    if not rest:
        _page(sys.stderr)
        return 2
    if rest[0] == "--version":
        from importlib.metadata import version

        print("turnlog", version("turnlog"))
        return 0
    if rest[0] in {"--help", "-h", "help"}:
        return _help(globals_, rest[1:])
    name, rest = _named(rest)
    return _invoke(name, rest, globals_)


def _globals(argv: list[str]) -> tuple[Globals, list[str]]:
    """Read the global options that stand before the command."""
    ledger, as_json, no_color = None, False, False
    rest = list(argv)
    while rest:
        if rest[0] == "--json":
            as_json = True
        elif rest[0] == "--no-color":
            no_color = True
        elif rest[0].startswith("--ledger="):
            ledger = rest[0].removeprefix("--ledger=")
        elif rest[0] == "--ledger":
            if len(rest) == 1:
                raise InvalidError("--ledger needs a URL", hint="write --ledger sqlite:////absolute/path")
            ledger = rest.pop(1)
        else:
            break
        rest.pop(0)
    return Globals(ledger, as_json, no_color), rest


def _named(rest: list[str]) -> tuple[str, list[str]]:
    """Split off the command's name, of one to three words. Raises InvalidError for an unknown one."""
    for length in (3, 2, 1):
        name = " ".join(rest[:length])
        if len(rest) >= length and name in COMMANDS:
            return name, rest[length:]
    word = rest[0]
    if word.startswith("-"):
        raise InvalidError(f"no such option: {word}", hint="`turnlog --help` lists options and commands")
    for begun in (" ".join(rest[:2]), word):
        longer = [name for name in COMMANDS if name.startswith(f"{begun} ")]
        if longer:
            raise InvalidError(f"`turnlog {begun}` needs to be told what", hint=f"try `turnlog {longer[0]}`")
    from difflib import get_close_matches

    near = get_close_matches(word, [name.partition(" ")[0] for name in COMMANDS], n=1, cutoff=0.7)
    hint = f"did you mean `turnlog {near[0]}`? " if near else ""
    raise InvalidError(f"no such command: {word}", hint=f"{hint}`turnlog --help` lists the commands")


def _invoke(name: str, args: list[str], globals_: Globals) -> int:
    from importlib import import_module

    if name == "usage":
        from turnlog.surfaces.cli import usage_quick, usage_show

        ready = usage_quick.parse(args, globals_)
        if ready is not None:
            # A report makes many objects and no circles, and then it ends.
            gc.disable()
            try:
                return usage_show.show(*ready)
            finally:
                gc.enable()
    module = import_module(f"{PACKAGE}.{COMMANDS[name][0]}")
    gc.enable()
    if name == "usage statusline" and not args:
        # Asked for several times a second: no parser is loaded for nothing to parse.
        return int(module.statusline(Cli(globals_)))
    from turnlog.surfaces.cli.command import invoke

    word = name.rpartition(" ")[2]
    return invoke(getattr(module, f"{word}_" if iskeyword(word) else word), name, args, globals_)


def _help(globals_: Globals, rest: list[str]) -> int:
    if not rest:
        _page(sys.stdout)
        return 0
    name, _ = _named(rest)
    return _invoke(name, ["--help"], globals_)


def _page(file: object) -> None:
    lines = [USAGE, "", "Flight recorder and dispatcher for coding agents."]
    for heading in dict.fromkeys(entry[1] for entry in COMMANDS.values()):
        lines += ["", f"{heading}:"]
        lines += [f"  {name:<20} {what}" for name, (_, group, what) in COMMANDS.items() if group == heading]
    lines += [
        "",
        "Options, before or after the command:",
        "  --ledger URL   sqlite:////absolute/path (else TURNLOG_LEDGER, the config file, the default place)",
        "  --json         one JSON object or array on stdout",
        "  --no-color     no colours (as NO_COLOR)",
        "  --version      the version; `turnlog COMMAND --help` explains a command",
    ]
    print("\n".join(lines), file=file)  # type: ignore[call-overload]


def _before_separator(argv: Sequence[str]) -> Sequence[str]:
    return argv[: list(argv).index("--")] if "--" in argv else argv


def _settle_streams() -> None:
    """Never fail on a character the terminal cannot show, nor on a closed stream."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _unexpected(error: Exception, *, as_json: bool) -> int:
    if os.environ.get("TURNLOG_DEBUG") == "1":
        import traceback

        traceback.print_exc()
    hint = "run it again with TURNLOG_DEBUG=1 to see where; that is worth a bug report"
    if isinstance(error, OSError):
        hint = "check the disk and the permissions; TURNLOG_DEBUG=1 shows where it happened"
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return report_failure(what, hint, "internal", 1, as_json=as_json)
