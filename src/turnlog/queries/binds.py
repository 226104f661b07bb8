"""Usage around binds over the ledger (4.7): what receipts say of a task, and what post-hoc attribution would move."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import msgspec

from turnlog.errors import ConflictError, MissingError
from turnlog.history.binds import PHASES, Piece, Split, TurnSpan, split
from turnlog.ledger import Store
from turnlog.ledger.activity import BoundSession
from turnlog.ledger.rollups import RollupTx
from turnlog.model import Session, Task
from turnlog.queries import pricing
from turnlog.queries.folding import fold, is_covered
from turnlog.queries.rollup import Pricing
from turnlog.queries.usage import usage_report
from turnlog.receipts import canonical
from turnlog.usage.buckets import Sums, buckets, price
from turnlog.usage.report import Sheet, UsageRow


class PartUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The turns of one side of a bind and what they used."""

    turns: int
    usage: UsageRow


class BindUsage(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation's usage around its bind; ``bound_at`` (unix ms) None = it is not bound.

    ``prospective``: what the receipts give to the task. ``post_hoc``: that, and what they give to no task.
    """

    session: str
    title: str
    task: str
    task_identifier: str
    bound_at: int | None
    before: PartUsage
    during: PartUsage
    after: PartUsage
    prospective: UsageRow
    post_hoc: UsageRow


class TaskBinds(msgspec.Struct, frozen=True, kw_only=True):
    """A task's total as the receipts say, and with everything moved to it of the conversations bound to it."""

    task: str
    task_identifier: str
    binds: int
    prospective: UsageRow
    post_hoc: UsageRow


class BindsReport(msgspec.Struct, frozen=True, kw_only=True):
    """Binds, newest first, and their tasks; ``next`` is the cursor of the next page."""

    binds: tuple[BindUsage, ...]
    tasks: tuple[TaskBinds, ...]
    next: str | None


def usage_binds(
    store: Store,
    *,
    task: str | None = None,
    wave: str | None = None,
    project: str | None = None,
    since: int = 0,
    cursor: str | None = None,
    limit: int | None = 50,
) -> BindsReport:
    """Return the usage of bound conversations around their bind, and of their tasks (4.7).

    Words for work are as in usage reports. A fresh fold of every conversation bound to the tasks shown: O(their
    receipts). Raises InvalidError for a cursor that is none.
    """
    tasks, waves = _scope(store, task=task, wave=wave, project=project)
    bound, following = store.work.bound_sessions(since=since, tasks=tasks, waves=waves, cursor=cursor, limit=limit)
    book = Pricing(pricing.open_book)
    splits: dict[str, Split] = {}
    told: list[TaskBinds] = []
    for task_id in dict.fromkeys(each.task_id for each in bound):
        everything = store.work.bound_to_task(task_id)
        for each in everything:
            splits[each.id] = _split(store, each.id, each.bound_at, task_id, book)
        # Asked for after the folds: it brings the roll-ups up to date, which the sums above do not need.
        total = _sums(usage_report(store, "total", task=task_id).totals)
        moved = _added(total, *(splits[each.id].movable for each in everything))
        told.append(
            TaskBinds(
                task=task_id,
                task_identifier=_task(store, task_id).identifier,
                binds=len(everything),
                prospective=_row(total),
                post_hoc=_row(moved),
            )
        )
    names = {each.task: each.task_identifier for each in told}
    return BindsReport(
        binds=tuple(_told(each, names[each.task_id], splits[each.id]) for each in bound),
        tasks=tuple(told),
        next=following,
    )


def preview(store: Store, session_id: str, task_id: str) -> BindUsage:
    """Return what a bind at this moment would leave before and during it; nothing is done: O(receipts).

    For a conversation that is for the task already: what there is. Raises MissingError, and ConflictError where the
    bind itself would.
    """
    session = store.sessions.get(session_id)
    if session is None:
        raise MissingError(f"no session {session_id}")
    task = _task(store, task_id)
    _refuse(store, session, task)
    bound_at = session.bound_at if session.task_id == task_id else None
    at = store.now() if bound_at is None else bound_at
    found = _split(store, session_id, at, task_id, Pricing(pricing.open_book))
    told = _told(BoundSession(session_id, task_id, task.wave_id, session.title, at), task.identifier, found)
    return msgspec.structs.replace(told, bound_at=bound_at)


def _refuse(store: Store, session: Session, task: Task) -> None:
    if session.task_id is not None and session.task_id != task.id:
        other = store.work.task(session.task_id)
        raise ConflictError(
            f"session {session.id} is for task {other.identifier if other else session.task_id} already",
            hint="a binding is for good; begin another conversation with `turnlog run --task`",
        )
    if session.wave_id not in (None, task.wave_id):
        wave = store.work.wave(session.wave_id or "")
        raise ConflictError(
            f"session {session.id} is for wave {wave.slug if wave else session.wave_id}, task {task.identifier} is not"
            " of it",
            hint="only a task of the same wave can be bound",
        )


def _task(store: Store, task_id: str) -> Task:
    found = store.work.task(task_id)
    if found is None:
        raise MissingError(f"no task {task_id}", hint="`turnlog work task list` lists what is here")
    return found


def _scope(store: Store, *, task: str | None, wave: str | None, project: str | None) -> tuple[str | None, str | None]:
    """Return what words for work name, as JSON lists of task ids and of wave ids; None = any."""
    tasks: set[str] | None = None
    with store.rollups.read() as tx:
        for found in (
            None if project is None else tx.named_tasks(project=project),
            None if task is None else tx.named_tasks(task=task),
        ):
            if found is not None:
                tasks = found if tasks is None else tasks & found
        waves = None if wave is None else tx.named_waves(wave)
    return (
        None if tasks is None else canonical(sorted(tasks)),
        None if waves is None else canonical(sorted(waves)),
    )


def _split(store: Store, session: str, bound_at: int, task_id: str, book: Pricing) -> Split:
    spans = store.work.turn_spans(session)
    with store.rollups.read() as tx:
        pieces = _pieces(tx, session, book, spans)
    return split(pieces, spans, bound_at, task_id)


def _pieces(tx: RollupTx, session: str, book: Pricing, spans: Sequence[TurnSpan]) -> list[Piece]:
    """Fold a session anew; estimates that reports count stay. Nothing counts where the parent's receipts count it."""
    if is_covered(tx, session, {}):
        return []
    folded = fold(tx, session, details=True)
    number = tx.state(session).number
    kept = {} if number is None else {row.key: row for row in tx.streams(number)}
    pieces = []
    for row, stream in zip(folded.streams, folded.details, strict=True):
        held = kept.get(row.key)
        if held is not None:
            row.estimated, row.low = held.estimated, held.low
        elif book.book is not None:
            price(row, book.book)
        (bucket,) = buckets([row], [])
        pieces.append(Piece(stream.thread, stream.turn, row.at, row.kind.task, bucket.sums))
    # A gap that belongs to no stream may still name its turn.
    named = {f"native:{span.thread}:{span.turn}": span for span in spans}
    details = iter(folded.loose_details)
    for each in folded.loose:
        for _, gap in islice(details, sum(each.gaps.values())):
            sums, span = Sums(gaps={gap.kind: 1}), named.get(gap.stream or "")
            if span is None:
                pieces.append(Piece(None, None, each.at, each.kind.task, sums))
            else:
                pieces.append(Piece(span.thread, span.turn, each.at, span.task_id, sums))
    return pieces


def _sums(row: UsageRow) -> Sums:
    tokens = {name: getattr(row.tokens, name) for name in row.tokens.__struct_fields__}
    return Sums(
        streams=row.streams,
        final=row.final_streams,
        unpriced=row.cost.unpriced_calls,
        low=row.cost.low_estimates,
        calls=row.calls,
        reported=row.cost.reported_usd,
        estimated=row.cost.estimated_usd,
        gaps={gap.kind: gap.count for gap in row.gaps},
        **tokens,
    )


def _added(*several: Sums) -> Sums:
    total = Sums(gaps={})
    for each in several:
        total.add(each)
    return total


def _row(sums: Sums) -> UsageRow:
    sheet = Sheet()
    sheet.add("total", None, sums)
    return sheet.row("total")


def _told(bound: BoundSession, identifier: str, found: Split) -> BindUsage:
    parts = {phase: PartUsage(turns=found.turns[phase], usage=_row(found.sums[phase])) for phase in PHASES}
    return BindUsage(
        session=bound.id,
        title=bound.title,
        task=bound.task_id,
        task_identifier=identifier,
        bound_at=bound.bound_at,
        before=parts["before"],
        during=parts["during"],
        after=parts["after"],
        prospective=_row(found.attributed),
        post_hoc=_row(_added(found.attributed, found.movable)),
    )
