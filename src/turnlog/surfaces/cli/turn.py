"""Driving the turn of ``run`` and ``resume``, and the last words about it."""

from __future__ import annotations

import sys
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final

from turnlog import drive
from turnlog.errors import TurnlogError
from turnlog.surfaces.cli.driving import drive_loop
from turnlog.surfaces.cli.execs import as_exec
from turnlog.surfaces.cli.inputs import is_low
from turnlog.surfaces.cli.output import SCHEMA_VERSION, json_text, plain, print_foreign, print_json
from turnlog.surfaces.cli.render import Lines, Quiet, Screen
from turnlog.surfaces.cli.sink import Sink
from turnlog.surfaces.cli.state import STYLES
from turnlog.surfaces.cli.words import UNKNOWN, dollars, note, number, one_line, plural, report_failure, short_id

if TYPE_CHECKING:
    from turnlog.api import Ledger
    from turnlog.drive import Stop, TurnResult
    from turnlog.surfaces.cli.context import Cli
    from turnlog.surfaces.cli.run import Asked

_ENDINGS: Final = {
    1: ("failed", "the turn failed"),
    5: ("uncertain", "what became of the turn is not known"),
    124: ("timed_out", "the time for the turn is over"),
    130: ("interrupted", "the turn was interrupted"),
}


def drive_turn(cli: Cli, ledger: Ledger, asked: Asked, session_id: str | None, *, jsonl: bool) -> int:
    """Drive one turn of a new conversation (``session_id`` None) or of a known one; return the exit code."""
    sink = Sink()
    listener = _listener(cli, sink, jsonl=jsonl, ask=asked.options.permissions == "ask")

    def work(stop: Stop, exec_id: str) -> Awaitable[TurnResult]:
        if session_id is None:
            return drive.run(ledger, exec_id, asked.prompt, asked.options, listener, stop)
        return drive.resume(ledger, exec_id, session_id, asked.prompt, asked.options, listener, stop)

    results: list[TurnResult] = []

    def action(exec_id: str) -> int:
        results.append(drive_loop(lambda stop: work(stop, exec_id)))
        return results[0].exit_code

    try:
        code = as_exec(ledger, action)
    except TurnlogError:
        if listener.session_id and not cli.json and not jsonl:
            sink.err(f"session {short_id(listener.session_id)}\n")
        raise
    finally:
        if isinstance(listener, Screen):
            listener.finish()
        sink.close()
    _show(cli, results[0], jsonl=jsonl, streamed=isinstance(listener, Screen))
    return code


def _listener(cli: Cli, sink: Sink, *, jsonl: bool, ask: bool) -> Quiet:
    if jsonl:
        return Lines(sink, color=cli.color_err, ask=ask)
    if sys.stdout.isatty() and not cli.json:
        return Screen(sink, color=cli.color and cli.color_err, ask=ask)
    return Quiet(sink, color=cli.color_err, ask=ask)


def _show(cli: Cli, result: TurnResult, *, jsonl: bool, streamed: bool) -> None:
    if jsonl:
        print(json_text({"type": "result", **_plain(result)}))
    elif cli.json:
        print_json(_plain(result))
    elif not streamed:
        _print_answer(result)
    if not (jsonl or cli.json):
        _last_line(cli, result)
    if result.exit_code:
        code, words = _ENDINGS.get(result.exit_code, _ENDINGS[1])
        what = f"{words}: {result.error}" if result.error else words
        name = short_id(result.session_id)
        hint = f'`turnlog show {name}` tells more; `turnlog resume {name} "…"` goes on'
        if result.status == "unknown":
            if code != "uncertain":
                what += "; how it ended is not known"
            hint = f"`turnlog recover {name}` looks it up in the provider's own history; it is never sent twice"
        report_failure(what, hint, code, result.exit_code, as_json=cli.json or jsonl)


def _print_answer(result: TurnResult) -> None:
    if result.answer is not None and result.answer.text:
        print_foreign(result.answer.text)
    elif result.value is not None:
        print(json_text(result.value))


def _plain(result: TurnResult) -> dict[str, Any]:
    answer = result.answer
    return {
        "schema_version": SCHEMA_VERSION,
        "session": result.session_id,
        "artifact_key": result.artifact_key,
        "provider": result.provider,
        "thread": result.thread,
        "turn": result.turn,
        "status": result.status,
        "answer": None if answer is None else answer.text,
        "value": result.value,
        "exact": None if answer is None else answer.exact,
        "usage": plain(result.usage),
        "gaps": result.usage.gaps,
        "error": result.error,
    }


def _last_line(cli: Cli, result: TurnResult) -> None:
    """Say on stderr how it went, what it cost, what is not known, and how to go on."""
    usage, low = result.usage, is_low(result.usage)
    status = one_line(result.status)
    style = STYLES.get(result.status)
    parts = [
        f"\x1b[{style}m{status}\x1b[0m" if style and cli.color_err else status,
        f"{number(usage.total_input_tokens, low=low)} in",
        f"{number(usage.output_tokens, low=low)} out",
        "cost unknown" if usage.cost_usd is None else dollars(usage.cost_usd, low=low),
        plural(usage.gaps, "gap") if usage.gaps else "no gaps",
    ]
    if usage.total_input_tokens is None and usage.output_tokens is None:
        parts[1:3] = [f"tokens {UNKNOWN}"]
    name = short_id(result.session_id)
    note(f"{' · '.join(parts)} · session {name}")
    if result.exit_code == 0:
        note(f'go on: turnlog resume {name} "…"')
