"""One typer command from a plain function: the global options are added, the answer is an exit code.

Only typer's public interface is used, so that any supported version of it will do.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

from turnlog.errors import InvalidError
from turnlog.surfaces.cli.context import Cli, Globals

_USAGE_ERRORS: Final[tuple[type[BaseException], ...]] = tuple(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)
"""The root of typer's own errors; its module moved between versions."""

_TEXTS: Final = {"run", "resume", "steer"}

_EXTRA: Final[dict[str, Any]] = {
    "ledger_url": Annotated[
        str | None, typer.Option("--ledger", metavar="URL", help="The ledger to use.", show_default=False)
    ],
    "as_json": Annotated[bool, typer.Option("--json", help="Print JSON.")],
    "no_color": Annotated[bool, typer.Option("--no-color", help="No colours.")],
}


def invoke(function: Callable[..., int], name: str, args: list[str], globals_: Globals) -> int:
    """Parse ``args`` and call ``function(cli, …)``. Raises InvalidError for a wrong command line."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    parsed: list[Callable[[], int]] = []
    settings = {"help_option_names": ["-h", "--help"]}
    app.command(name.rpartition(" ")[2], context_settings=settings)(_parser(function, globals_, parsed))
    try:
        code = app(args, prog_name=f"turnlog {name}", standalone_mode=False)
    except _USAGE_ERRORS as error:
        raise _usage_error(error, name) from None
    # Called here and not by typer, which has views of its own on broken pipes and interrupts.
    return parsed[0]() if parsed else int(code or 0)


def _parser(function: Callable[..., int], globals_: Globals, parsed: list[Callable[[], int]]) -> Callable[..., None]:
    """Return what typer calls: ``function``'s parameters and the global options; it only notes the call to make."""
    signature = inspect.signature(function, eval_str=True)
    parameters = list(signature.parameters.values())[1:]
    defaults = {"ledger_url": None, "as_json": False, "no_color": False}
    extra = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=defaults[name])
        for name, kind in _EXTRA.items()
    ]

    @functools.wraps(function)
    def command(ledger_url: str | None, as_json: bool, no_color: bool, **given: Any) -> None:
        cli = Cli(globals_.merged(ledger_url, as_json, no_color))
        parsed.append(functools.partial(function, cli, **given))

    own = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    command.__signature__ = signature.replace(parameters=[*own, *extra])  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in (*own, *extra)}
    del command.__wrapped__
    return command


def _usage_error(error: Any, name: str) -> InvalidError:
    words = " ".join(str(error.format_message()).split()).rstrip(".").replace("Value error, ", "")
    hint = f"`turnlog {name} --help` shows how it is used"
    if "unexpected extra argument" in words and name in _TEXTS:
        hint = "put the text in quotes: it is one argument"
    return InvalidError(words[:1].lower() + words[1:], hint=hint)
