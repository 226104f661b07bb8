"""The page that ``turnlog show`` prints for a person."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from turnlog.process import Liveness
from turnlog.queries.hide import hide
from turnlog.surfaces.cli.context import Cli
from turnlog.surfaces.cli.fold import Turn
from turnlog.surfaces.cli.gaps import MEANING, explain
from turnlog.surfaces.cli.inputs import is_low
from turnlog.surfaces.cli.output import Cell, Column, count_cell, print_table, time_cell
from turnlog.surfaces.cli.state import STYLES, Seat, turn_word
from turnlog.surfaces.cli.words import UNKNOWN, dollars, duration, local_time, number, one_line, plural, safe, short_id

if TYPE_CHECKING:
    from turnlog.model import ProviderRecord
    from turnlog.surfaces.cli.show import Facts
    from turnlog.usage.report import UsageRow

NEWEST: Final = 20
"""Turns that the page shows; ``--json`` gives all."""

_Shown = Callable[[str], str]
_ANSWER_LINES: Final = 40
_HEAD: Final = (
    Column("TURN"),
    Column("STARTED", drop=2),
    Column("TOOK", right=True, drop=1),
    Column("STATUS"),
    Column("INPUT", right=True),
    Column("OUTPUT", right=True),
    Column("CACHE READ", right=True, drop=3),
    Column("COST", right=True),
    Column("GAPS", right=True, drop=4),
)


def print_page(cli: Cli, facts: Facts, *, redact: bool) -> None:
    """Print all that is known, section by section; a section without content is left out.

    With ``redact`` secrets are hidden in what people and agents said.
    """
    shown = hide if redact else str
    heading(cli, one_line(shown(facts.session.title)))
    for name, value in _facts(facts, shown):
        print(f"{name:<10} {value}")
    sys.stdout.flush()  # what follows reads every receipt
    _turns(cli, facts, shown)
    _usage(cli, facts)
    _questions(cli, facts, shown)
    _answer(cli, facts, shown)


def heading(cli: Cli, text: str) -> None:
    """Print the title of a section."""
    print(f"\x1b[1m{text}\x1b[0m" if cli.color else text)


def _facts(facts: Facts, shown: _Shown) -> Iterator[tuple[str, str]]:
    session, row = facts.session, facts.row
    yield "session", one_line(session.id)
    yield "state", f"{row['state']}, newest turn: {turn_word(row['latest_turn'], facts.seat)}"
    yield "created", local_time(session.created_at, seconds=True)
    if session.completed_at is not None:
        yield "closed", local_time(session.completed_at, seconds=True)
    if session.ready_summary:
        yield "ready", one_line(shown(session.ready_summary))
    yield "folder", one_line(session.cwd)
    provider = one_line(session.provider or UNKNOWN)
    yield "provider", f"{provider}, model {one_line(session.model)}" if session.model else provider
    if session.task_id or session.wave_id:
        from turnlog.history.inputs import work_label

        own = [work_label(each) for each in facts.inputs if each.artifact_key == session.artifact_key]
        label = own[0] if own else session.task_id or session.wave_id or UNKNOWN
        mixed = row["work"]["mixed"] and not label.startswith("mixed")
        yield "work", one_line(f"mixed, now {label}" if mixed else label)
    if session.home_id is not None:
        yield "home", facts.home
    yield "thread", one_line(facts.thread or UNKNOWN)
    yield "driver", _driver(facts.seat)
    yield "engine", _engine(facts)
    keys = [short_id(key.removeprefix("run_")) for key in facts.keys]
    newest = ", ".join(keys[-NEWEST:])
    yield "inputs", f"… {newest}" if len(keys) > NEWEST else newest or UNKNOWN
    if facts.pruned.text_at is not None:
        yield "pruned", f"its transcript up to {local_time(facts.pruned.text_at)} was dropped"
    if facts.pruned.receipts_at is not None:
        yield (
            "pruned",
            f"its receipts up to {local_time(facts.pruned.receipts_at)} were removed; what they said of usage is kept",
        )


def _driver(seat: Seat) -> str:
    if not seat.taken or seat.driver is None:
        return "nobody drives it"
    alive = {"alive": "running", "dead": "not running any more", "unknown": "running or not: unknown"}
    word = alive[seat.liveness.value] if seat.liveness else "unknown"
    if seat.exec is None:
        return f"exec {one_line(seat.driver.exec_id)}, {word}"
    return f"pid {seat.exec.pid or UNKNOWN} since {local_time(seat.exec.started_at)}, {word}"


def _engine(facts: Facts) -> str:
    engine = facts.engine
    if engine is None:
        return "none recorded"
    from turnlog.redact import sanitise

    parts = [f"pid {engine['pid']}"] if engine["pid"] else []
    if engine["endpoint"]:
        parts.append(one_line(sanitise(engine["endpoint"])))
    parts.append(
        {"alive": "running", "dead": "not running any more"}.get(engine["liveness"], "running or not: unknown")
    )
    return ", ".join(parts)


def _turns(cli: Cli, facts: Facts, shown: _Shown) -> None:
    turns = facts.folded.turns
    if not turns:
        return
    records = {
        (record.thread, record.turn): record for each in facts.inputs for record in each.providers if record.turn
    }
    print()
    left_out = len(turns) - NEWEST
    heading(cli, f"turns (the newest {NEWEST} of {len(turns)})" if left_out > 0 else "turns")
    rows = [_turn(turn, records.get((turn.thread, turn.turn)), facts.seat) for turn in turns[-NEWEST:]]
    print_table(cli, _HEAD, rows)
    for turn in turns[-NEWEST:]:
        if turn.error:
            print(f"  {_tail(turn.turn)} {turn.status}: {one_line(shown(turn.error), 300)}")


def _turn(turn: Turn, record: ProviderRecord | None, seat: Seat) -> list[Cell | str]:
    status = turn.status or ("delivery unknown" if turn.started_at is None else turn_word("running", seat))
    took = None
    if turn.started_at is not None and turn.completed_at is not None:
        took = turn.completed_at - turn.started_at
    usage = record.usage if record else None
    low = usage is not None and is_low(usage)
    return [
        _tail(turn.turn),
        time_cell(turn.started_at),
        duration(took),
        Cell(one_line(status), style=STYLES.get(status, "")),
        count_cell(usage.input_tokens if usage else None, low=low),
        count_cell(usage.output_tokens if usage else None, low=low),
        count_cell(usage.cache_read_tokens if usage else None, low=low),
        dollars(usage.cost_usd if usage else None, low=low),
        UNKNOWN if usage is None else str(usage.gaps),
    ]


def _tail(identifier: str) -> str:
    """Return a turn's id cut from the left: its beginning is the time and the same for many."""
    text = one_line(identifier)
    return text if len(text) <= 14 or not sys.stdout.isatty() else f"…{text[-13:]}"  # noqa: PLR2004


def _usage(cli: Cli, facts: Facts) -> None:
    total = facts.usage.totals
    print()
    heading(cli, "usage")
    if not total.streams and not total.gaps:
        print("nothing was reported")
        return
    print(count_line(total))
    print(cost_line(total))
    gaps = [gap for each in facts.inputs for gap in each.usage.gap_list]
    for line in explain(gaps):
        print(f"≥ {line}")
    for gap in total.gaps:  # what could not be read is of the whole conversation, of no input
        if gap.kind == "unreadable" and not any(each.kind == gap.kind for each in gaps):
            print(f"≥ {gap.count} × {gap.kind}: {MEANING[gap.kind]}")


def count_line(total: UsageRow) -> str:
    """Return the token counts of a total in one line."""
    low = bool(total.gaps) or total.final_streams < total.streams
    tokens = total.tokens
    counts = (
        ("input", tokens.input),
        ("cache read", tokens.cache_read),
        ("cache write", tokens.cache_write),
        ("output", tokens.output),
        ("of it reasoning", tokens.reasoning),
    )
    return " · ".join(f"{name} {number(value, low=low)}" for name, value in counts)


def cost_line(total: UsageRow) -> str:
    """Return what a total cost by its providers, what is estimated beside it, and how much of it is final."""
    low = bool(total.gaps) or total.final_streams < total.streams
    unpriced, reported = total.cost.unpriced_calls, total.cost.reported_usd
    cost = "cost unknown" if reported is None else f"cost {dollars(reported, low=low or unpriced > 0)} as reported"
    if unpriced and reported is not None:
        cost += f", nothing reported for {plural(unpriced, 'stream')}"
    return f"{cost} · {total.final_streams} of {plural(total.streams, 'stream')} final"


def _questions(cli: Cli, facts: Facts, shown: _Shown) -> None:
    waiting = facts.folded.waiting
    if not waiting:
        return
    print()
    heading(cli, "questions without an answer")
    name = short_id(facts.session.id)
    for question in waiting:
        print(f"{one_line(question.action)}: {one_line(shown(question.detail), 300)}")
        print(f"  turnlog permit {name} {one_line(question.id)} once|always|reject")
    if facts.seat.liveness is not Liveness.ALIVE:
        print("  no process is known to run that could take an answer")


def _answer(cli: Cli, facts: Facts, shown: _Shown) -> None:
    answer = facts.answer
    if answer is None:
        return
    print()
    origin = f"turn {_tail(answer.turn)}" if answer.turn else "unnamed turn"
    heading(cli, f"answer ({origin}{'' if answer.exact else ', not the newest'})")
    lines = shown(safe(answer.text)).splitlines()
    if not lines and answer.value is not None:
        from turnlog.surfaces.cli.output import json_text

        lines = shown(json_text(answer.value, indent=True)).splitlines()
    print("\n".join(lines[:_ANSWER_LINES]))
    if len(lines) > _ANSWER_LINES:
        print(f"… {len(lines) - _ANSWER_LINES} more lines: turnlog answer {short_id(facts.session.id)}")
