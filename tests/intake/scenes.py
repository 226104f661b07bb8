"""Small odd histories, each of several files: what programs leave when conversations are forked, resumed and copied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from tests.harness.claude_reading import (
    OTHER,
    SESSION,
    file_of,
    progress,
    prompt,
    result,
    said,
    system,
    text,
    tool,
    usage,
)
from tests.harness.codex_rollouts import CHILD, PARENT, T0, Rollout, uuid7
from tests.harness.opencode_stored import Db, answered, asked, counters
from tests.harness.opencode_stored import said as part
from tests.harness.test_opencode_reader_storage import Folder

Write = Callable[[Path], list[Path]]
"""Writes a history into a folder and returns what can be imported on its own."""

THIRD: Final = "5a1d0000-0000-4000-8000-000000000003"
GRAND: Final = uuid7(T0 - 200_000, 0)
OLD: Final = uuid7(T0 - 50_000, 1)
NEW: Final = uuid7(T0 + 5000, 1)


def at(minute: int) -> str:
    return f"2026-02-03T04:{minute:02d}:00.000Z"


def of(session: str, *lines: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    return [{**line, "sessionId": session, **more} for line in lines]


def claude(*files: tuple[str, Sequence[dict[str, Any]]]) -> Write:
    def write(folder: Path) -> list[Path]:
        paths = []
        for name, lines in files:
            path = folder / "claude" / "projects" / f"{name}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file_of(*lines))
            paths.append(path)
        return paths

    return write


def codex(*rollouts: tuple[str, Rollout]) -> Write:
    def write(folder: Path) -> list[Path]:
        paths = []
        for name, rollout in rollouts:
            path = folder / "codex" / "sessions" / "2026" / f"rollout-2026-09-21T14-13-20-{name}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(rollout.bytes)
            paths.append(path)
        return paths

    return write


def talk(number: int, minute: int, **more: Any) -> list[dict[str, Any]]:
    return [
        prompt(f"p{number}", f"ask {number}", timestamp=at(minute), **more),
        said(f"m{number}", text(f"answer {number}"), stop="end_turn", timestamp=at(minute + 1), **more),
    ]


LINES: Final = [*talk(1, 5), *talk(2, 10)]


def _claude_resumed() -> Write:
    """A resume that copied the old session's lines under their own id, then one that renamed them."""
    return claude(
        (f"-app/{SESSION}", LINES),
        (f"-app/{OTHER}", [*LINES, *of(OTHER, *talk(3, 20), cwd="/home/dev/other")]),
        (f"-other/{THIRD}", of(THIRD, *LINES, *talk(4, 30), cwd="/elsewhere", version="2.2.0")),
    )


def _claude_reused() -> Write:
    """A gateway that uses ids again: in other sessions, and again and again in one; copies lack some requests."""
    ids = [
        said(
            "m1", text(f"reused {n}"), uuid=f"u{n}", requestId=f"r{n}", used=usage(n + 1, 100 + n), timestamp=at(n + 1)
        )
        for n in range(12)
    ]
    other = said("m1", text("elsewhere"), uuid="o", requestId="q", model="m-2", used=usage(7, 99), timestamp=at(2))
    bare = said("m1", text("bare"), uuid="b", used=usage(3, 104), timestamp=at(30))
    return claude(
        (f"-app/{SESSION}", [prompt("p1", "reused", timestamp=at(0)), *ids]),
        (f"-app/{OTHER}", of(OTHER, prompt("p1", "reused", timestamp=at(0)), *ids[3:6], other)),
        (f"-app/{THIRD}", of(THIRD, prompt("p1", "reused", timestamp=at(0)), other, bare)),
    )


def _claude_forked() -> Write:
    """A fork that says of each copied line where it came from, and a fork of that fork."""
    mark = {"forkedFrom": {"sessionId": SESSION, "messageUuid": "x"}}
    again = {"forkedFrom": {"sessionId": OTHER, "messageUuid": "x"}}
    return claude(
        (f"-app/{SESSION}", [*LINES, *talk(5, 40)]),
        (f"-app/{OTHER}", [*of(OTHER, *LINES, **mark), *of(OTHER, *talk(3, 20))]),
        (f"-app/{THIRD}", [*of(THIRD, *LINES, *talk(3, 20), **again), *of(THIRD, *talk(4, 30, model="m-2"))]),
    )


def _claude_agents() -> Write:
    """Agents with files of their own, in both places, and the parent's notes of what they did."""
    launch = said("m1", tool("t1", "Task"), stop="tool_use", timestamp=at(6))
    answer = result("t1", "done", toolUseResult={"agentId": "a1", "totalTokens": 5}, timestamp=at(9))
    mine = of(
        SESSION,
        prompt("ap1", "explore", timestamp=at(7)),
        said("am1", text("found"), stop="end_turn", timestamp=at(8)),
        isSidechain=True,
        agentId="a1",
    )
    more = of(
        SESSION,
        prompt("bp1", "look", timestamp=at(7)),
        said("bm1", text("seen"), stop="end_turn", timestamp=at(8)),
        isSidechain=True,
        agentId="b1",
    )
    return claude(
        (
            f"-app/{SESSION}",
            [
                prompt("p1", "go", promptId="q1", timestamp=at(5)),
                launch,
                progress("a1", mine[1]),
                answer,
                said("m2", text("all"), stop="end_turn", timestamp=at(12)),
                *talk(3, 20),
            ],
        ),
        (f"-app/{SESSION}/subagents/agent-a1", [dict(line, promptId="q1") for line in mine]),
        ("-app/agent-b1", more),
    )


def _claude_sidechains() -> Write:
    """Old agents inside their parent's file, and a copy of it that was cut while an answer streamed."""
    inside = [
        *talk(1, 5),
        *[{**line, "isSidechain": True} for line in talk(8, 7)],
        *of(SESSION, *talk(9, 8), isSidechain=True, agentId="a9"),
        said("m7", text("half"), used=usage(1), timestamp=at(15)),
    ]
    whole = [
        *inside[:-1],
        said("m7", text("half"), used=usage(1), timestamp=at(15)),
        said("m7", text("half and more"), stop="end_turn", used=usage(90), timestamp=at(16)),
    ]
    return claude((f"-app/{SESSION}", whole), (f"-old/{SESSION}", inside), (f"-copy/{OTHER}", of(OTHER, *whole)))


def _claude_compacted() -> Write:
    """A session that was compacted, and one that goes on from the summary in a new file."""
    boundary = system(
        "compact_boundary", uuid="c1", compactMetadata={"trigger": "auto", "preTokens": 9}, timestamp=at(14)
    )
    summary = prompt("cs", "This session is being continued", isCompactSummary=True, timestamp=at(14))
    titled = {"type": "summary", "summary": "A title", "leafUuid": "a-m2"}
    custom = {"type": "custom-title", "customTitle": "Named", "sessionId": SESSION}
    return claude(
        (f"-app/{SESSION}", [*LINES, boundary, summary, *talk(3, 15), titled]),
        (f"-app/{OTHER}", [*LINES, custom, *of(OTHER, boundary, summary, *talk(4, 20))]),
        (f"-app/{THIRD}", [titled, *of(THIRD, summary, *talk(6, 1))]),
    )


def _claude_cut() -> Write:
    """Copies that end at different places: without an end, interrupted, completed; and lines without a time."""
    start = [prompt("p1", "go", timestamp=at(5)), said("m1", tool("t1"), stop="tool_use", timestamp=at(6))]
    stopped = prompt("pi", "[Request interrupted by user]", timestamp=at(7))
    timeless = {**said("m9", text("when"), stop="end_turn"), "timestamp": None}
    return claude(
        (f"-a/{SESSION}", start),
        (f"-b/{SESSION}", [*start, stopped]),
        (f"-c/{SESSION}", [*start, stopped, *talk(2, 8), timeless, *talk(3, 1)]),
    )


def _codex_forks() -> Write:
    """A conversation, a fork that copied its turns, a fork of that, and one that only names what it goes on from."""
    grand = (
        Rollout(GRAND, clock=-190_000)
        .started(OLD)
        .context(turn_id=OLD)
        .prompt("first")
        .count(1000, 1000)
        .said("one")
        .ended(OLD, "one")
    )
    parent = Rollout(PARENT, clock=-90_000, forked_from_id=GRAND).meta(GRAND)
    parent.started(OLD).context(turn_id=OLD).prompt("first").count(1000, 1000).said("one").ended(OLD, "one")
    middle = uuid7(T0 - 80_000, 5)
    parent.wait(10_000).started(middle).context(turn_id=middle).prompt("second").count(1700, 700).ended(middle, "two")
    child = Rollout(CHILD, forked_from_id=PARENT).meta(PARENT).meta(GRAND)
    child.started(OLD).context(turn_id=OLD).count(1000, 1000).ended(OLD, "one")
    child.started(middle).context(turn_id=middle).count(1700, 700).ended(middle, "two")
    child.wait(5000).started(NEW).context("gpt-6", turn_id=NEW).prompt("third").count(2500, 800).ended(NEW, "three")
    return codex((GRAND, grand), (PARENT, parent), (CHILD, child))


def _codex_old_forks() -> Write:
    """Forks of versions without turn ids: the parent's lines, all of the fork's moment."""
    grand = Rollout(GRAND, clock=-190_000).context().prompt("first").count(1000).said("one")
    parent = Rollout(PARENT, clock=-90_000).meta(GRAND).context().prompt("first").count(1000).count(1500).said("two")
    child = Rollout(CHILD).meta(PARENT).meta(GRAND).context().prompt("first").count(1000).count(1500)
    child.wait(60_000).prompt("more").count(1900).said("three")
    return codex((GRAND, grand), (PARENT, parent), (CHILD, child))


def _codex_doubtful() -> Write:
    """A fork of the same second, whose copied turn only the parent's file can tell."""
    parent = (
        Rollout("p", clock=-100)
        .started("old", started_at=T0 // 1000)
        .context()
        .prompt("a")
        .count(9000, 9000)
        .said("x")
        .ended("old", "x")
    )
    child = (
        Rollout("c", forked_from_id="p")
        .started("old", started_at=T0 // 1000)
        .context()
        .prompt("a")
        .count(9000, 9000)
        .said("x")
        .ended("old", "x")
    )
    child.started("new", started_at=T0 // 1000).context().prompt("b").count(9500, 500).ended("new", "y")
    return codex(("p", parent), ("c", child))


def _codex_base() -> Write:
    """A fork that copied nothing and names the record of its parent that it goes on from."""
    base = {"thread_id": PARENT, "end_ordinal_exclusive": 4}
    parent = (
        Rollout(PARENT, ordinal=0).started("t").context(turn_id="t").record("r1", 2500, 2500, turn_id="t").ended("t")
    )
    child = (
        Rollout(CHILD, ordinal=4, history_base=base)
        .started("u")
        .context(turn_id="u")
        .prompt("on")
        .count(3550, 700)
        .ended("u")
    )
    return codex((PARENT, parent), (CHILD, child))


def _codex_continued() -> Write:
    """A rollout with a file that goes on from it, and the same conversation copied elsewhere and cut."""
    first = (
        Rollout(PARENT, ordinal=0)
        .started("t")
        .context(turn_id="t")
        .prompt("a")
        .record("r1", 1000, 1000, turn_id="t")
        .ended("t", "x")
    )
    later = (
        Rollout(PARENT, ordinal=3, clock=60_000)
        .started("u")
        .context("gpt-6", turn_id="u")
        .prompt("b")
        .record("r2", 500, 1500, turn_id="u")
        .ended("u", "y")
    )
    return codex((PARENT, first), (f"{PARENT}_{uuid7(T0 + 60_000, 9)}", later))


def _codex_agents() -> Write:
    """A subagent that copied its parent's beginning, one that did not, replayed counts and jumps."""
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": PARENT, "depth": 1}}}
    turn, own, other = uuid7(T0 - 80_000, 5), uuid7(T0 + 100, 6), uuid7(T0 + 300, 7)
    parent = (
        Rollout(PARENT, clock=-90_000)
        .started(turn)
        .context(turn_id=turn)
        .prompt("a")
        .count(1000, 1000)
        .count(1000, 1000)
        .count(3000, 500)
        .count(2500)
        .ended(turn, "x")
    )
    child = (
        Rollout(CHILD, source=spawn, forked_from_id=PARENT)
        .meta(PARENT)
        .started(turn)
        .context(turn_id=turn)
        .count(1000, 1000)
    )
    child.wait(100).started(own, turn_attribution={"parent_turn_id": turn}).context(turn_id=own).prompt("b").count(
        400, 400
    ).ended(own, "y")
    lone = uuid7(T0 + 200, 8)
    second = (
        Rollout(lone, clock=200, source=spawn)
        .started(other)
        .context(turn_id=other)
        .prompt("c")
        .count(700, 700)
        .ended(other)
    )
    return codex((PARENT, parent), (CHILD, child), (lone, second))


def _opencode(folder: Path) -> list[Path]:
    """Forks and children over two databases and an older folder; some conversations are in several of them."""
    place = folder / "opencode"
    place.mkdir()
    old, new = Db(place / "opencode.db"), Db(place / "opencode-dev.db")
    tree = Folder(place / "storage")
    tree.session("s1", 1000)
    tree.turn("s1", 0, 1000)
    tree.turn("s1", 1, 1100)
    old.session("s1", 1000, version="1.1.65", title="Named", updated=1400)
    for number in range(3):
        old.turn("s1", number, 1000 + number * 100)
    new.session("s2", 5000, title="Named (fork #1)")
    new.turn("s2", 0, 1000)
    new.turn("s2", 7, 6000, modelID="model-b")
    old.session("s3", 1300, parent="s1", title="Child")
    old.turn("s3", 0, 1300)
    new.session("s3", 1300, parent="s1", title="Child, later", updated=1800)
    new.message("s3", "msg_open_a", asked(1700))
    new.message("s3", "msg_open_b", answered("msg_open_a", 1710, completed=None, tokens=counters(7)))
    new.part("s3", "msg_open_b", "prt_open", part("half"), 1720)
    for each in (old, new):
        each.close()
    return [place / "opencode.db", place / "opencode-dev.db", place / "storage"]


SCENES: Final[dict[str, Write]] = {
    "claude_resumed": _claude_resumed(),
    "claude_forked": _claude_forked(),
    "claude_reused": _claude_reused(),
    "claude_agents": _claude_agents(),
    "claude_sidechains": _claude_sidechains(),
    "claude_compacted": _claude_compacted(),
    "claude_cut": _claude_cut(),
    "codex_forks": _codex_forks(),
    "codex_old_forks": _codex_old_forks(),
    "codex_base": _codex_base(),
    "codex_continued": _codex_continued(),
    "codex_agents": _codex_agents(),
    "opencode": _opencode,
}

DOUBTFUL: Final = _codex_doubtful()
"""A history of which the ledger holds more when the parent's file comes last: what it counts is the same."""
