"""``turnlog run`` and ``turnlog resume``: one turn, driven, shown and recorded."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from turnlog.errors import ConflictError, InvalidError, MissingError
from turnlog.surfaces.cli.context import Cli
from turnlog.surfaces.cli.prompt import encodable, read_prompt, read_schema
from turnlog.surfaces.cli.when import seconds
from turnlog.surfaces.cli.words import note, one_line

if TYPE_CHECKING:
    from turnlog.api import Ledger
    from turnlog.drive import RunOptions


class Policy(StrEnum):
    """Who answers when the agent asks for a permission."""

    ASK = "ask"
    ALLOW = "allow"
    DENY = "deny"


class Asked(NamedTuple):
    """A checked command line, before the ledger is opened."""

    prompt: str
    options: RunOptions
    task: str | None
    wave: str | None
    jsonl: bool


_PROVIDER: Final = typer.Option("--provider", metavar="NAME", help="The agent program.", show_default="opencode")
_MODEL: Final = typer.Option("--model", metavar="MODEL", help="As the provider spells it (provider/model).")
_CWD: Final = typer.Option("--cwd", metavar="DIR", help="Folder the agent works in.", show_default="this one")
_TITLE: Final = typer.Option("--title", metavar="TITLE", help="A title of your own.")
_TASK: Final = typer.Option("--task", metavar="TASK", help="The task this is for.")
_WAVE: Final = typer.Option("--wave", metavar="WAVE", help="The wave this is for.")
_SCHEMA: Final = typer.Option("--schema", metavar="FILE", help="JSON Schema that the answer must fit.")
_ENDPOINT: Final = typer.Option("--endpoint", metavar="URL", help="Use this running engine; it is left running.")
_PERMISSIONS: Final = typer.Option(
    "--permissions", help="When the agent asks.", show_default="ask on a terminal, else deny"
)
_TIMEOUT: Final = typer.Option("--timeout", metavar="TIME", help="Stop the turn after 90, 5m or 2h.")
_JSONL: Final = typer.Option("--jsonl", help="One event per line as it comes, then the result.")
_FALLBACK: Final = typer.Option(
    "--fallback",
    metavar="PROVIDER",
    help="Hand over to this provider if the first fails without having changed anything.",
)
_AFTER: Final = typer.Option("--fallback-after-effects", help="Hand over even if tools ran or the end is unknown.")
_REPLACE: Final = typer.Option("--replace", help="Take over from a process whose end cannot be proved.")


def run(
    cli: Cli,
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What the agent should do; - reads it from stdin.")],
    provider: Annotated[str | None, _PROVIDER] = None,
    model: Annotated[str | None, _MODEL] = None,
    cwd: Annotated[Path | None, _CWD] = None,
    title: Annotated[str | None, _TITLE] = None,
    task: Annotated[str | None, _TASK] = None,
    wave: Annotated[str | None, _WAVE] = None,
    schema: Annotated[Path | None, _SCHEMA] = None,
    endpoint: Annotated[str | None, _ENDPOINT] = None,
    permissions: Annotated[Policy | None, _PERMISSIONS] = None,
    timeout: Annotated[str | None, _TIMEOUT] = None,
    fallback: Annotated[str | None, _FALLBACK] = None,
    fallback_after_effects: Annotated[bool, _AFTER] = False,
    jsonl: Annotated[bool, _JSONL] = False,
) -> int:
    """Begin a conversation with an agent: one turn, shown as it comes and recorded.

    Example: turnlog run "why does the login test fail?"
    """
    given = {
        "provider": provider,
        "model": model,
        "cwd": cwd,
        "title": title,
        "endpoint": endpoint,
        "fallback": fallback,
        "fallback_after_effects": fallback_after_effects,
    }
    asked = _check(cli, prompt, given, task, wave, schema, permissions, timeout, jsonl)
    with cli.ledger(write=True) as ledger:
        from turnlog.surfaces.cli.turn import drive_turn

        asked = _with_work(ledger, asked)
        if not (asked.task or asked.wave):
            asked = _with_checkout(ledger, asked, tell=not (cli.json or asked.jsonl))
        return drive_turn(cli, ledger, asked, None, jsonl=asked.jsonl)


def resume(
    cli: Cli,
    session: Annotated[
        str | None, typer.Argument(metavar="SESSION", help="Id of a conversation, or its beginning.")
    ] = None,
    prompt: Annotated[
        str | None, typer.Argument(metavar="PROMPT", help="What the agent should do; - reads it from stdin.")
    ] = None,
    last: Annotated[bool, typer.Option("--last", help="The conversation with the newest receipt.")] = False,
    provider: Annotated[str | None, _PROVIDER] = None,
    model: Annotated[str | None, _MODEL] = None,
    cwd: Annotated[Path | None, _CWD] = None,
    title: Annotated[str | None, _TITLE] = None,
    task: Annotated[str | None, _TASK] = None,
    wave: Annotated[str | None, _WAVE] = None,
    schema: Annotated[Path | None, _SCHEMA] = None,
    endpoint: Annotated[str | None, _ENDPOINT] = None,
    permissions: Annotated[Policy | None, _PERMISSIONS] = None,
    timeout: Annotated[str | None, _TIMEOUT] = None,
    fallback: Annotated[str | None, _FALLBACK] = None,
    fallback_after_effects: Annotated[bool, _AFTER] = False,
    jsonl: Annotated[bool, _JSONL] = False,
    replace: Annotated[bool, _REPLACE] = False,
) -> int:
    """Ask the next turn of a conversation, in the same thread of the same agent.

    Example: turnlog resume 4f1c "now fix it"   or   turnlog resume --last "now fix it"
    """
    if last:
        if prompt is not None:
            raise InvalidError("--last names the conversation: give only the prompt", hint="leave SESSION out")
        session, prompt = None, session
    if prompt is None:
        raise InvalidError(
            "missing argument: a prompt" if session or last else "missing arguments: SESSION and PROMPT",
            hint='turnlog resume SESSION "…"   or   turnlog resume --last "…"',
        )
    given = {
        "provider": provider,
        "model": model,
        "cwd": cwd,
        "title": title,
        "endpoint": endpoint,
        "fallback": fallback,
        "fallback_after_effects": fallback_after_effects,
        "replace": replace,
    }
    asked = _check(cli, prompt, given, task, wave, schema, permissions, timeout, jsonl)
    with cli.ledger(write=True) as ledger:
        from turnlog.surfaces.cli.turn import drive_turn

        found = ledger.find_session(session) if session is not None else ledger.latest_session()
        if found is None:
            raise MissingError("there is no conversation yet", hint='begin one with `turnlog run "…"`')
        asked = _with_work(ledger, asked)
        if asked.options.wave_id is not None and asked.options.wave_id != found.wave_id:
            raise InvalidError("a wave is given when a conversation begins", hint="leave --wave out, or run anew")
        return drive_turn(cli, ledger, asked, found.id, jsonl=asked.jsonl)


def _check(
    cli: Cli,
    prompt: str,
    given: dict[str, Any],
    task: str | None,
    wave: str | None,
    schema: Path | None,
    permissions: Policy | None,
    timeout: str | None,
    jsonl: bool,
) -> Asked:
    """Check everything that can be checked before anything is opened or recorded. Raises InvalidError."""
    from turnlog import config
    from turnlog.drive import RunOptions
    from turnlog.surfaces.cli.ask import at_terminal

    if given["cwd"] is not None:
        folder = given["cwd"].expanduser()
        encodable(str(folder), "the name of the folder")
        if not folder.is_dir():
            what = "is not a folder" if folder.exists() else "does not exist"
            raise InvalidError(f"--cwd {folder} {what}", hint="name an existing folder")
        given["cwd"] = folder.resolve()
    if given["title"] is not None and not encodable(given["title"], "the title").strip():
        raise InvalidError("the title is empty", hint="leave --title out, or say something")
    limit = None if timeout is None else seconds(timeout)
    demanded = read_schema(schema)
    settings = config.load(cli.options.ledger)
    policy = permissions or (Policy.ASK if at_terminal() else Policy.DENY)
    options = RunOptions(
        state_dir=settings.state_dir,
        keep_engine=settings.keep_engine,
        lease_s=settings.lease_s,
        schema=demanded,
        permissions=policy.value,
        timeout_s=limit,
        **given,
    )
    return Asked(read_prompt(prompt), options, task, wave, jsonl)


def _with_work(ledger: Ledger, asked: Asked) -> Asked:
    """Look up the task and the wave that were named, and the input that asked when an agent runs us."""
    from msgspec.structs import replace

    from turnlog.drive import calling_input, read_caller
    from turnlog.surfaces.cli.work import resolve

    ids = {"caller": calling_input(ledger, read_caller(os.environ))}
    if asked.task is not None:
        ids["task_id"] = resolve(ledger, "task", asked.task, active=True)
    if asked.wave is not None:
        ids["wave_id"] = resolve(ledger, "wave", asked.wave, active=True)
    if asked.task is not None and asked.wave is not None:
        task = ledger.task(ids["task_id"] or "")
        if task is not None and task.wave_id != ids["wave_id"]:
            raise ConflictError(
                f"task {task.identifier} is not in wave {asked.wave}", hint="leave --wave out: a task is in its own"
            )
    return asked._replace(options=replace(asked.options, **ids))


def _with_checkout(ledger: Ledger, asked: Asked, *, tell: bool) -> Asked:
    """Attribute a new conversation to what its folder is for, where that is one thing; marked as such, for good."""
    from msgspec.structs import replace

    found = ledger.checkout_work(asked.options.cwd or Path.cwd())
    if found is None:
        return asked
    if tell:
        note(f"for {one_line(found.name)}, by its checkout")
    options = replace(asked.options, task_id=found.task_id, wave_id=found.wave_id, work_source="checkout")
    return asked._replace(options=options)
