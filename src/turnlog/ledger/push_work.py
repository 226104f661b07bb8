"""Everything of a push that stands beside receipts: processes, work, requests, and what sources told."""

from __future__ import annotations

from typing import Any, Final

from turnlog.errors import ConflictError
from turnlog.ledger.backend import Tx
from turnlog.ledger.copy_tables import (
    ALIASES,
    EXECS,
    HOMES,
    NATIVES,
    PROBLEMS,
    PROJECTS,
    PRS,
    REQUESTS,
    SESSION_SOURCES,
    SOURCES,
    TASKS,
    WAVES,
)
from turnlog.ledger.push_joined import look
from turnlog.ledger.push_state import Push, text

_PAGE: Final = 500
_SETTLED: Final = frozenset({"accepted", "not_steerable", "uncertain", "refused"})


def push_homes(push: Push) -> None:
    """Make homes known: those of the source, and the one that pushes."""
    home = push.wishes.home
    with push.source.read() as source:
        rows = HOMES.page(source, None, _PAGE)
    mine = [] if home is None else [(home.id, home.name, home.machine, home.created_at)]
    with push.target.write() as tx:
        for name, called, machine, at in dict.fromkeys((*map(tuple, rows), *mine)):
            new = tx.run("insert_home", id=name, name=called, machine=machine, at=at)
            if new and home is not None and home.was and name == home.id:
                push.done.notes.append(
                    f"turnlog's data folder came here from another machine ({home.was[-1]}): it is a home of its own"
                )


def _home(push: Push) -> str | None:
    """Return of which home rows are that name none: a file is the ledger of one home."""
    return None if push.wishes.home is None or not push.source.url.startswith("sqlite:") else push.wishes.home.id


def push_execs(push: Push) -> None:
    """Tell of processes, and of their ends."""
    home = _home(push)
    for found in push.changed("exec", EXECS):
        rows = {name: {**row, "home_id": row["home_id"] or home} for name, (row, _) in found.items()}
        with push.target.write() as tx:
            new = {row[0] for row in tx.all("push_execs", rows=text(list(rows.values())))}
        push.done.execs += len(new)
        for name, row in rows.items():
            if name not in new and row["completed_at"] is not None:
                _exec_end(push, name, row)
        push.tell("exec", {name: digest for name, (_, digest) in found.items()})


def _exec_end(push: Push, name: str, row: dict[str, Any]) -> None:
    """One in a transaction: an end lets go of turns in many conversations, in an order that others wait in too."""
    members = ("completed_at", "outcome", "exit_code", "signal", "error")
    with push.target.write() as tx:
        if tx.run("push_exec_end", id=name, **{each: row[each] for each in members}):
            return
        there = tx.one("exec", id=name)
    if there is not None and there[8:11] != (row["completed_at"], row["outcome"], row["exit_code"]):
        push.problem("conflict", f"exec {name}", f"it ended there as {there[9]}, and that stays")


# --- work


def push_work(push: Push) -> None:
    """Tell of waves, projects, tasks and pull requests.

    Work is named by its id. Where the same work stands in the target under another id (a wave's name in its place, an
    external id below it), that stands for it.
    """
    home = _home(push)
    for found in push.changed("wave", WAVES):
        states = {}
        for name, (row, digest) in found.items():
            parent = push.work(row["parent_wave_id"])
            taken = {"repo": row["repo"], "parent": parent, "name": row["name"]}
            told = {**row, "parent_wave_id": parent, "home_id": row["home_id"] or home}
            there = _stand(push, "wave", name, "wave_taken", row, taken, told)
            states[name] = f"{digest}|{there}"
        push.tell("wave", states)
    for found in push.changed("project", PROJECTS):
        states = {}
        for name, (row, digest) in found.items():
            wave = push.work(row["wave_id"])
            taken = {"wave": wave, "external": row["external_project_id"], "slug": row["project_slug"]}
            there = _stand(push, "project", name, "project_taken", row, taken, {**row, "wave_id": wave})
            states[name] = f"{digest}|{there}"
        push.tell("project", states)
    for found in push.changed("task", TASKS):
        states = {}
        for name, (row, digest) in found.items():
            project = push.work(row["project_id"])
            taken = {"project": project, "external": row["external_issue_id"]}
            there = _stand(push, "task", name, "task_taken", row, taken, {**row, "project_id": project})
            states[name] = f"{digest}|{there}"
        push.tell("task", states)
    for found in push.changed("pr", PRS):
        with push.target.write() as tx:
            for row, _ in found.values():
                tx.run(
                    "insert_task_pr",
                    id=row["id"],
                    task=push.work(row["task_id"]),
                    external=row["external_pr_id"],
                    identifier=row["pr_identifier"],
                    at=row["created_at"],
                    title=row["pr_title"],
                )
        push.tell("pr", {name: digest for name, (_, digest) in found.items()})


_WRITE: Final = {"wave": "push_wave", "project": "push_project", "task": "push_task"}
_UNTOLD: Final[dict[str, tuple[str, ...]]] = {
    "wave": ("depth",),
    "project": (),
    "task": ("worktree", "worktree_home_id"),
}


def _stand(
    push: Push, kind: str, name: str, query: str, row: dict[str, Any], taken: dict[str, Any], told: dict[str, Any]
) -> str:
    """Write a record, or find what stands for it; return its id in the target."""
    with push.target.write() as tx:
        there = name
        if tx.one(kind, id=name) is None:
            there = _other(tx, kind, name, query, row, taken)
        if there == name:
            tx.run(_WRITE[kind], **{each: value for each, value in told.items() if each not in _UNTOLD[kind]})
    push.names[name] = there
    return there


def _other(tx: Tx, kind: str, name: str, query: str, row: dict[str, Any], taken: dict[str, Any]) -> str:
    alias = tx.one("work_alias", id=name)
    if alias is not None:
        return str(alias[0])
    found = tx.one(query, **taken) if row["retired_at"] is None else None
    if found is None:
        return name
    tx.run("insert_work_alias", id=name, kind=kind, stands_for=found[0])
    return str(found[0])


def push_requests(push: Push) -> None:
    """Tell of requests that are settled: an open one is for the driver here, and for no other."""
    for found in push.changed("request", REQUESTS):
        rows = {name: row for name, (row, _) in found.items() if row["state"] in _SETTLED}
        with push.target.write() as tx:
            tx.all("push_requests", rows=text(list(rows.values())))
        push.tell("request", {name: found[name][1] for name in rows})


# --- what sources told


def push_sources(push: Push) -> None:
    """Tell of sources and of what could not be read in them; their bytes stay here unless asked for."""
    for found in push.changed("source", SOURCES):
        states = {}
        before = push.told("source", found)
        for name, (row, digest) in found.items():
            number = int(name)
            problems = _problems(push, number)
            with push.target.write() as tx:
                there = _stand_source(push, tx, row, digest, before.get(name, "").partition("|")[0])
                if there is None:
                    continue
                tx.run("delete_problems", id=there, start=-(2**63))
                tx.many("insert_problems", [(there, *each[1:]) for each in problems])
            push.sources[number] = there
            states[name] = f"{digest}|{there}"
        push.tell("source", states)


def _stand_source(push: Push, tx: Tx, row: dict[str, Any], digest: str, before: str) -> int | None:
    """Write a source; return its number in the target. ``before``: the digest that was told of it last, if any.

    Copies of one ledger, as on cloned machines, have the same sources under the same numbers, and go different ways.
    What another home told of a source since is a file of that home: the one here gets a row of its own.
    """
    home = "" if push.wishes.home is None else push.wishes.home.id
    told = _source(push, row)
    name, mine = told["origin"], f"{told['origin']}:{home}"
    known: dict[str, str] = dict(tx.all("pushed_states", target=push.origin, kind="source_by", ids=text([name, mine])))
    by, _, last = known.get(name, "").partition(" ")
    if mine in known or (last and last not in {digest, before} and by != home):
        name = mine
    # One home may be two machines that have one id: what they read under one number, they did not first read at once.
    for origin in (name, f"{name}:{row['first_read_at']}"):
        found = tx.one("push_source", **{**told, "origin": origin})
        if found is not None:
            tx.many("note_pushed", [(push.origin, "source_by", name, f"{home} {digest}")])
            return int(found[0])
    return None


def _source(push: Push, row: dict[str, Any]) -> dict[str, Any]:
    names = (
        "provider", "path", "kind", "thread", "size", "modified_at", "read_to", "lines", "decoder", "first_read_at",
        "read_at", "missing_at", "pruned_at",
    )  # fmt: skip
    return {
        **{name: row[name] for name in names},
        "archived": int(push.wishes.archive and bool(row["archived"])),
        "replaced_at": row["read_at"] if row["replaced_at"] is None else row["replaced_at"],
        "origin": row["origin"] or f"{push.origin}:{row['id']}",
    }


def _problems(push: Push, source: int) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    after: tuple[Any, ...] = (source, -(2**63), "")
    while True:
        with push.source.read() as tx:
            rows = PROBLEMS.page(tx, after, _PAGE)
        found += [row for row in rows if row[0] == source]
        if not rows or rows[-1][0] != source:
            look(push, {row[5] for row in found})
            return [(*row[:5], None if row[5] is None else push.session(row[5]), *row[6:]) for row in found]
        after = rows[-1][:3]


_LOCAL: Final = ("id", "pruned_at")


def push_natives(push: Push) -> None:
    """Tell what sources told of conversations that the target has."""
    for found in push.changed("native", NATIVES):
        look(push, {row["session_id"] for row, _ in found.values()})
        states = {}
        for name, (row, digest) in found.items():
            joined = push.joined.get(row["session_id"])
            if joined is not None and joined.handed:
                states[name] = digest  # a conversation shows what its last provider tells
                continue
            told = {**row, "session_id": push.session(row["session_id"])}
            try:
                with push.target.write() as tx:
                    tx.run("push_native", **{each: value for each, value in told.items() if each not in _LOCAL})
            except ConflictError as error:
                push.problem("conflict", f"session {row['session_id']}", error.message)
            states[name] = digest
        push.tell("native", states)
    for found in push.changed("alias", ALIASES):
        look(push, {row["session_id"] for row, _ in found.values()})
        with push.target.write() as tx:
            tx.many(
                "insert_aliases",
                [(row["provider"], row["alias"], push.session(row["session_id"])) for row, _ in found.values()],
            )
        push.tell("alias", {name: digest for name, (_, digest) in found.items()})
    for found in push.changed("told_by", SESSION_SOURCES):
        look(push, {row["session_id"] for row, _ in found.values()})
        rows = [(push.session(row["session_id"]), push.sources.get(row["source_id"])) for row, _ in found.values()]
        with push.target.write() as tx:
            tx.many("insert_session_sources", [row for row in rows if row[1] is not None])
        push.tell("told_by", {name: digest for name, (_, digest) in found.items()})
