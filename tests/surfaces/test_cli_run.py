"""Run and resume around the driving itself: checks before anything is recorded, the Exec, signals, the result."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

import turnlog
from tests.surfaces.conftest import Outcome, Turnlog, shell
from tests.surfaces.scenes import Scene
from turnlog import drive
from turnlog.drive import Listener, RecoverReport, RunOptions, Stop, TurnResult
from turnlog.errors import RefusedError, TurnlogError, UnavailableError
from turnlog.harness import ConversationEvent
from turnlog.model import Exec, FinalAnswer, Gap, Usage

Act = Callable[[Listener, Stop], Awaitable[dict[str, Any]]]

USAGE = Usage(streams=2, final_streams=2, input_tokens=1200, output_tokens=50, total_input_tokens=1600, cost_usd=0.0017)
GAPPY = Usage(streams=1, gaps=1, gap_list=(Gap(kind="interrupted"),), output_tokens=50)


class Fake:
    """Stands for ``drive.run`` and ``drive.resume``; keeps what it was given."""

    def __init__(self, act: Act | None = None) -> None:
        self._act = act
        self.prompt = ""
        self.session: str | None = None
        self.options: RunOptions | None = None

    async def run(
        self, ledger: turnlog.Ledger, exec_id: str, prompt: str, options: RunOptions, listener: Listener, stop: Stop
    ) -> TurnResult:
        self.prompt, self.options = prompt, options
        listener.session("session_1234567890abcdef", "a" * 32)
        members: dict[str, Any] = {"status": "completed", "exit_code": 0, "usage": USAGE}
        members |= await self._act(listener, stop) if self._act else {}
        return TurnResult(
            **{
                "session_id": "session_1234567890abcdef",
                "artifact_key": "a" * 32,
                "provider": "opencode",
                "thread": "ses_1",
                "turn": "msg_1",
                "answer": FinalAnswer(text="all \x1b[1mgood\x1b[0m", exact=True, turn="msg_1"),
                "value": None,
                **members,
            }
        )

    async def resume(
        self,
        ledger: turnlog.Ledger,
        exec_id: str,
        session_id: str,
        prompt: str,
        options: RunOptions,
        listener: Listener,
        stop: Stop,
    ) -> TurnResult:
        self.session = session_id
        return await self.run(ledger, exec_id, prompt, options, listener, stop)


Drive = Callable[[Act | None], Fake]


@pytest.fixture
def driven(monkeypatch: pytest.MonkeyPatch) -> Drive:
    def install(act: Act | None = None) -> Fake:
        fake = Fake(act)
        monkeypatch.setattr(drive, "run", fake.run)
        monkeypatch.setattr(drive, "resume", fake.resume)
        return fake

    return install


def raising(error: TurnlogError) -> Act:
    async def act(_: Listener, __: Stop) -> dict[str, Any]:
        raise error

    return act


def saying(**members: Any) -> Act:
    async def act(_: Listener, __: Stop) -> dict[str, Any]:
        return members

    return act


def last_exec() -> Exec:
    with turnlog.open_ledger(read_only=True) as ledger:
        (found,) = ledger.execs(limit=1)
    return found


# --- before anything is recorded


@pytest.mark.parametrize(
    ("argv", "what"),
    [
        (["run", ""], "the prompt is empty"),
        (["run", " \t\n"], "the prompt is empty"),
        (["run", "a\x00b"], "the prompt holds a NUL character at position 1"),
        (["run", "caf\udce9"], "the prompt is not valid UTF-8"),
        (["run", "--cwd", "/nowhere/at/all", "x"], "--cwd /nowhere/at/all does not exist"),
        (["run", "--cwd", "/etc/passwd", "x"], "--cwd /etc/passwd is not a folder"),
        (["run", "--title", "  ", "x"], "the title is empty"),
        (["run", "--timeout", "soon", "x"], "'soon' is not a length of time"),
        (["run", "--timeout", "0", "x"], "'0' is not a length of time"),
        (["run", "--timeout", "-5", "x"], "'-5' is not a length of time"),
        (["run", "--schema", "/nowhere.json", "x"], "cannot read /nowhere.json: No such file or directory"),
        (["run", "--permissions", "never", "x"], "invalid value for '--permissions': 'never' is not one of"),
        (["resume", "--last"], "missing argument: a prompt"),
        (["resume", "aaaa"], "missing argument: a prompt"),
        (["resume"], "missing arguments: SESSION and PROMPT"),
        (["resume", "--last", "a", "b"], "--last names the conversation: give only the prompt"),
    ],
)
def test_a_wrong_command_line_leaves_nothing_behind(
    turnlog_: Turnlog, driven: Drive, argv: list[str], what: str
) -> None:
    fake = driven(None)
    shown = turnlog_(*argv)
    assert (shown.code, shown.out, fake.prompt) == (2, "", "")
    assert shown.err.startswith(f"turnlog: {what}")
    assert not Path(os.environ["TURNLOG_LEDGER"].removeprefix("sqlite:///")).exists()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "is not JSON"),
        ("", "is not JSON"),
        ("[1]", "is no JSON Schema"),
        ('{"type": "nope"}', "is no valid JSON Schema: $.type: "),
        ('{"properties": {"a": {"pattern": "("}}}', "is no valid JSON Schema: $.properties.a.pattern: "),
        ('{"maximum": NaN}', "is not JSON"),
    ],
)
def test_a_wrong_schema_is_refused(turnlog_: Turnlog, driven: Drive, tmp_path: Path, text: str, what: str) -> None:
    driven(None)
    (tmp_path / "s.json").write_text(text)
    shown = turnlog_("run", "--schema", str(tmp_path / "s.json"), "x")
    assert shown.code == 2
    assert shown.err.startswith(f"turnlog: {tmp_path}/s.json {what}")


def test_what_the_flags_mean(turnlog_: Turnlog, driven: Drive, tmp_path: Path, home: Path) -> None:
    fake = driven(None)
    (tmp_path / "s.json").write_text('{"type": "object"}')
    where = ["--cwd", str(tmp_path), "--endpoint", "http://x", "--schema", f"{tmp_path}/s.json"]
    how = ["--provider", "codex", "--model", "a/b", "--title", "T", "--permissions", "allow", "--timeout", "5m"]
    assert turnlog_("run", *where, *how, "say \x1b[1mhi").code == 0
    assert fake.prompt == "say \x1b[1mhi"
    assert fake.options == RunOptions(
        state_dir=home / "state" / "turnlog",
        cwd=tmp_path,
        provider="codex",
        model="a/b",
        title="T",
        endpoint="http://x",
        permissions="allow",
        timeout_s=300.0,
        schema={"type": "object"},
    )


def test_without_a_terminal_permissions_are_denied(turnlog_: Turnlog, driven: Drive) -> None:
    fake = driven(None)
    turnlog_("run", "x")
    assert fake.options is not None
    assert (fake.options.permissions, fake.options.cwd, fake.options.provider) == ("deny", None, None)


def test_task_and_wave_are_looked_up(turnlog_: Turnlog, driven: Drive) -> None:
    with turnlog.open_ledger() as ledger:
        wave = ledger.create_wave("tests", repo="/r")
        task = ledger.create_task(
            ledger.create_project(wave.id, external_id="p").id, external_id="i", identifier="ABC-1"
        )
    fake = driven(None)
    assert turnlog_("run", "--task", "ABC-1", "--wave", "tests", "x").code == 0
    assert fake.options is not None
    assert (fake.options.task_id, fake.options.wave_id) == (task.id, wave.id)
    assert turnlog_("run", "--task", "ABC-2", "x").code == 1
    with turnlog.open_ledger() as ledger:
        ledger.create_wave("others", repo="/r")
    other = turnlog_("run", "--task", "ABC-1", "--wave", "others", "x")
    assert (other.code, other.err.splitlines()) == (
        4,
        ["turnlog: task ABC-1 is not in wave others", "hint: leave --wave out: a task is in its own"],
    )


# --- the prompt from standard input: a process of its own, which never gets as far as an agent


@pytest.mark.parametrize(
    ("stdin", "what"),
    [
        (b"", "the prompt is empty"),
        (b" \n", "the prompt is empty"),
        (b"ab\xff", "standard input is not UTF-8: byte 2 is 0xff"),
        (b"a\0b", "the prompt holds a NUL character at position 1"),
    ],
)
def test_a_wrong_prompt_on_stdin(stdin: bytes, what: str) -> None:
    shown = shell("run", "-", stdin=stdin)
    assert (shown.code, shown.out) == (2, "")
    assert shown.err.startswith(f"turnlog: {what}\nhint: ")


def test_the_prompt_from_stdin(
    driven: Drive, turnlog_: Turnlog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake = driven(None)
    (tmp_path / "prompt").write_text("do this\nand that\n")
    with (tmp_path / "prompt").open() as file:
        monkeypatch.setattr("sys.stdin", file)
        assert turnlog_("run", "-").code == 0
    assert fake.prompt == "do this\nand that\n"


# --- the end


def test_the_answer_alone_is_on_stdout(turnlog_: Turnlog, driven: Drive) -> None:
    driven(None)
    shown = turnlog_("run", "x")
    assert (shown.code, shown.out) == (0, "all good\n")
    assert shown.err.splitlines() == [
        "completed · 1,600 in · 50 out · $0.0017 · no gaps · session 1234567890ab",
        'go on: turnlog resume 1234567890ab "…"',
    ]
    ended = last_exec()
    assert (ended.outcome, ended.exit_code, ended.error) == ("succeeded", 0, None)


def test_a_lower_bound_is_shown_as_one(turnlog_: Turnlog, driven: Drive) -> None:
    driven(saying(usage=GAPPY, answer=None))
    shown = turnlog_("run", "x")
    assert shown.out == ""
    assert shown.err.splitlines()[0] == ("completed · - in · ≥50 out · cost unknown · 1 gap · session 1234567890ab")


def test_a_structured_value_is_printed_when_there_are_no_words(turnlog_: Turnlog, driven: Drive) -> None:
    driven(saying(answer=None, value={"a": [1]}))
    assert turnlog_("run", "x").out == '{"a":[1]}\n'


def test_the_result_as_json(turnlog_: Turnlog, driven: Drive) -> None:
    driven(saying(value={"ok": True}))
    for argv in (["--json", "run", "x"], ["run", "--json", "x"], ["run", "x", "--json"]):
        shown = turnlog_(*argv)
        assert (shown.code, shown.err) == (0, "")
        value = shown.json
        assert value.pop("usage")["total_input_tokens"] == 1600
        assert value == {
            "schema_version": 1,
            "session": "session_1234567890abcdef",
            "artifact_key": "a" * 32,
            "provider": "opencode",
            "thread": "ses_1",
            "turn": "msg_1",
            "status": "completed",
            "answer": "all \x1b[1mgood\x1b[0m",
            "value": {"ok": True},
            "exact": True,
            "gaps": 0,
            "error": None,
        }


def test_jsonl_is_the_events_and_then_the_result(turnlog_: Turnlog, driven: Drive) -> None:
    async def act(listener: Listener, _: Stop) -> dict[str, Any]:
        listener.event(ConversationEvent("turn_started", turn_id="msg_1"))
        listener.event(ConversationEvent("text_delta", turn_id="msg_1", content="a\nb\x9b"))
        return {}

    driven(act)
    shown = turnlog_("run", "--jsonl", "x")
    first, *events, last = [Outcome(0, line, "").json for line in shown.lines]
    assert first == {"type": "session", "session": "session_1234567890abcdef", "artifact_key": "a" * 32}
    assert events == [
        {"type": "turn_started", "turn_id": "msg_1"},
        {"type": "text_delta", "turn_id": "msg_1", "content": "a\nb\x9b"},
    ]
    assert (last["type"], last["status"], last["schema_version"]) == ("result", "completed", 1)
    assert "\x9b" not in shown.out


@pytest.mark.parametrize(
    ("code", "status", "error", "word", "line"),
    [
        (1, "failed", "rate \x1b[1mlimited", "failed", "the turn failed: rate limited"),
        (5, "unknown", None, "uncertain", "what became of the turn is not known"),
        (124, "interrupted", None, "timed_out", "the time for the turn is over"),
        (124, "unknown", None, "timed_out", "the time for the turn is over; how it ended is not known"),
        (130, "interrupted", "Aborted", "interrupted", "the turn was interrupted: Aborted"),
    ],
)
def test_turns_that_did_not_complete(
    turnlog_: Turnlog, driven: Drive, code: int, status: str, error: str | None, word: str, line: str
) -> None:
    driven(saying(exit_code=code, status=status, error=error, answer=None))
    shown = turnlog_("run", "x")
    assert (shown.code, shown.out) == (code, "")
    summary, what, hint = shown.err.splitlines()
    assert summary.startswith(f"{status} · ")
    assert what == f"turnlog: {line}"
    assert ("turnlog recover 1234567890ab" in hint) is (status == "unknown")
    ended = last_exec()
    assert (ended.outcome, ended.exit_code) == ("interrupted" if code == 130 else "failed", code)
    as_json = turnlog_("run", "x", "--json")
    assert (as_json.code, as_json.json["status"], as_json.error["code"]) == (code, status, word)
    assert turnlog_("run", "x", "--jsonl").error["code"] == word


def test_an_error_while_driving_ends_the_exec_and_names_the_conversation(turnlog_: Turnlog, driven: Drive) -> None:
    driven(raising(UnavailableError("opencode is gone, api_key=sk-1234567890abcdefghij", hint="install it")))
    shown = turnlog_("run", "x")
    assert (shown.code, shown.out) == (1, "")
    assert shown.err.splitlines()[0] == "session 1234567890ab"
    assert shown.err.splitlines()[2] == "hint: install it"
    ended = last_exec()
    assert (ended.outcome, ended.exit_code) == ("failed", 1)
    assert ended.error == "opencode is gone, api_key=[redacted]"
    assert turnlog_("run", "x", "--json").error == {
        "code": "unavailable",
        "message": "opencode is gone, api_key=sk-1234567890abcdefghij",
        "hint": "install it",
    }


def test_an_error_inside_groups_comes_out_as_itself(turnlog_: Turnlog, driven: Drive) -> None:
    async def act(_: Listener, __: Stop) -> dict[str, Any]:
        async def fail() -> None:
            raise RefusedError("no such model", hint="choose another")

        async with anyio.create_task_group() as outer:
            outer.start_soon(fail)
        return {}

    driven(act)
    assert turnlog_("run", "x").err.splitlines()[1:] == ["turnlog: no such model", "hint: choose another"]


# --- signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_asks_to_stop_and_the_second_forces(
    turnlog_: Turnlog, driven: Drive, number: signal.Signals
) -> None:
    seen: list[bool] = []

    async def act(_: Listener, stop: Stop) -> dict[str, Any]:
        os.kill(os.getpid(), number)
        await stop.requested.wait()
        seen.append(stop.forced.is_set())
        os.kill(os.getpid(), number)
        await stop.forced.wait()
        return {"status": "interrupted", "exit_code": 130}

    driven(act)
    shown = turnlog_("run", "x")
    assert (shown.code, seen) == (130, [False])
    assert "turnlog: interrupting the turn; once more ends its engine at once\n" in shown.err
    assert "turnlog: ending the engine; once more gives up\n" in shown.err
    assert (last_exec().outcome, last_exec().exit_code) == ("interrupted", 130)


def test_the_third_signal_gives_up(turnlog_: Turnlog, driven: Drive) -> None:
    async def act(_: Listener, stop: Stop) -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGINT)
        await stop.requested.wait()
        os.kill(os.getpid(), signal.SIGINT)
        await stop.forced.wait()
        os.kill(os.getpid(), signal.SIGINT)
        await anyio.sleep_forever()
        return {}

    driven(act)
    shown = turnlog_("run", "x")
    assert shown.code == 130
    assert "giving up" in shown.err
    assert (last_exec().outcome, last_exec().exit_code) == ("interrupted", 130)


def test_an_ignored_signal_stays_ignored(turnlog_: Turnlog, driven: Drive) -> None:
    async def act(_: Listener, stop: Stop) -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
        await stop.requested.wait()
        return {"status": "interrupted" if not stop.forced.is_set() else "unknown", "exit_code": 130}

    driven(act)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert turnlog_("run", "x").err.splitlines()[-3].startswith("interrupted")
    finally:
        signal.signal(signal.SIGHUP, before)


# --- resume


def test_resume_by_beginning_and_the_last(turnlog_: Turnlog, driven: Drive, scene: Scene) -> None:
    fake = driven(None)
    assert turnlog_("resume", "aaaa", "go on", "--replace").code == 0
    assert (fake.session, fake.prompt) == (scene.fixed, "go on")
    assert fake.options is not None
    assert fake.options.replace
    with turnlog.open_ledger(scene.url) as ledger:
        newest = ledger.latest_session()
    assert newest is not None
    assert turnlog_("resume", "--last", "and on").code == 0
    assert (fake.session, fake.prompt) == (newest.id, "and on")


def test_resume_without_a_conversation(turnlog_: Turnlog, driven: Drive) -> None:
    driven(None)
    shown = turnlog_("resume", "--last", "x")
    assert (shown.code, shown.err.splitlines()[0]) == (1, "turnlog: there is no conversation yet")


def test_resume_renames_binds_and_keeps_its_wave(turnlog_: Turnlog, driven: Drive, scene: Scene) -> None:
    fake = driven(None)
    with turnlog.open_ledger(scene.url) as ledger:
        wave = ledger.create_wave("tests", repo="/r")
        task = ledger.create_task(
            ledger.create_project(wave.id, external_id="p").id, external_id="i", identifier="ABC-1"
        )
    assert turnlog_("resume", "aaaa", "x", "--title", "Better", "--task", "ABC-1").code == 0
    assert fake.options is not None
    # The driving does both, once the conversation is claimed: tests/review/test_drive.py.
    assert (fake.options.title, fake.options.task_id) == ("Better", task.id)
    with turnlog.open_ledger(scene.url) as ledger:
        session = ledger.session(scene.fixed)
    assert session is not None
    assert (session.title == "Better", session.task_id) == (False, None)
    assert turnlog_("resume", "aaab", "x", "--wave", "tests").code == 2


# --- recover


def report(session: str, **members: Any) -> RecoverReport:
    empty: dict[str, Any] = {"completed": (), "running": (), "unknown": (), "refused": ()}
    return RecoverReport(session_id=session, **{"new_receipts": 0, **empty, **members})


Recovered = Callable[[dict[str, RecoverReport | TurnlogError]], None]


@pytest.fixture
def recovered(monkeypatch: pytest.MonkeyPatch) -> Recovered:
    def install(found: dict[str, RecoverReport | TurnlogError]) -> None:
        async def recover(_: turnlog.Ledger, __: str, session_id: str, ___: RunOptions) -> RecoverReport:
            outcome = found[session_id]
            if isinstance(outcome, TurnlogError):
                raise outcome
            return outcome

        monkeypatch.setattr(drive, "recover", recover)
        monkeypatch.setattr(drive, "unfinished_sessions", lambda _: list(found))

    return install


def test_recover_tells_what_became_known(turnlog_: Turnlog, scene: Scene, recovered: Recovered) -> None:
    known = report(
        scene.fixed, new_receipts=2, completed=(("msg_1", "completed"),), running=("msg_2",), refused=("msg_3",)
    )
    recovered({scene.fixed: known})
    for argv in ([], ["aaaa"]):
        shown = turnlog_("recover", *argv)
        assert (shown.code, shown.err) == (0, "")
        assert shown.lines == [
            "session aaaa00000000: 2 new receipts",
            "  msg_1  completed",
            "  msg_2  still running",
            "  msg_3  never reached the provider",
        ]
    assert last_exec().outcome == "succeeded"
    assert turnlog_("recover", "--json").json["sessions"] == [
        {
            "session": scene.fixed,
            "new_receipts": 2,
            "completed": [{"turn": "msg_1", "status": "completed"}],
            "running": ["msg_2"],
            "unknown": [],
            "refused": ["msg_3"],
        }
    ]


def test_what_stays_unknown_is_uncertain(turnlog_: Turnlog, scene: Scene, recovered: Recovered) -> None:
    recovered({scene.fixed: report(scene.fixed, unknown=("msg_1",)), scene.gappy: report(scene.gappy)})
    shown = turnlog_("recover")
    assert shown.code == 5
    assert "  msg_1  nobody can tell any more; it stays unknown\n" in shown.out
    assert "session aaab00000000: nothing new recorded\n  nothing new became known about its turns\n" in shown.out


def test_one_conversation_that_cannot_be_recovered_does_not_stop_the_others(
    turnlog_: Turnlog, scene: Scene, recovered: Recovered
) -> None:
    gone = UnavailableError("opencode is not installed", hint="install it")
    recovered({scene.gappy: gone, scene.fixed: report(scene.fixed, new_receipts=1)})
    shown = turnlog_("recover")
    assert shown.code == 3
    assert shown.lines[0] == "session aaaa00000000: 1 new receipt"
    assert shown.err == "turnlog: session aaab00000000: opencode is not installed\nhint: install it\n"
    assert turnlog_("recover", "--json").json["failures"] == [
        {"session": scene.gappy, "code": "unavailable", "message": "opencode is not installed", "hint": "install it"}
    ]
    alone = turnlog_("recover", "aaab")
    assert (alone.code, alone.out, alone.err) == (1, "", "turnlog: opencode is not installed\nhint: install it\n")
