"""Starting, owning, adopting and ending the server program, with a small program that plays OpenCode's part."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from tests.harness.driving import until
from turnlog.errors import InvalidError, UnavailableError
from turnlog.harness import HarnessConfig
from turnlog.harness.opencode import engine
from turnlog.harness.opencode.engine import Engine
from turnlog.harness.opencode.records import Record
from turnlog.process import Liveness, identify, liveness

FAKE = """\
#!{python}
# A server with OpenCode's health route. FAKE names what goes wrong; FAKE_DIR is for notes.
import base64, json, os, subprocess, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

mode, notes = os.environ.get("FAKE", ""), Path(os.environ["FAKE_DIR"])
version = os.environ.get("FAKE_VERSION", "1.18.33")
if sys.argv[1:] == ["--version"]:
    print(version)
    sys.exit(0)
starts = len(list(notes.glob("start-*")))
(notes / "new").write_text(json.dumps({{"argv": sys.argv[1:], "env": dict(os.environ)}}))
(notes / "new").rename(notes / f"start-{{starts}}")
print("Warning: hello", flush=True)
if mode == "exit":
    sys.exit("token=abc: cannot read the configuration")
if mode == "taken" and starts == 0 or mode == "always taken":
    sys.exit("Error: Failed to start server. Is port 1 in use? EADDRINUSE")
if mode == "hang":
    time.sleep(60)
if mode == "child":
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    (notes / "child").write_text(str(child.pid))
expected = "Basic " + base64.b64encode(f"opencode:{{os.environ['OPENCODE_SERVER_PASSWORD']}}".encode()).decode()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        (notes / f"asked-{{time.monotonic_ns()}}").touch()
        while (notes / "hold").exists():
            time.sleep(0.01)
        status = 200 if self.headers.get("Authorization") == expected else 401
        status = 404 if mode == "old" and status == 200 else status
        body = json.dumps({{"healthy": True, "version": version}}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "bin" / "opencode"
    path.parent.mkdir()
    path.write_text(textwrap.dedent(FAKE).format(python=sys.executable))
    path.chmod(0o755)
    yield path
    for left in psutil.process_iter(["cmdline"]):  # by a test that failed
        if str(path) in (left.info["cmdline"] or []):
            left.kill()


@pytest.fixture
def config(tmp_path: Path, program: Path) -> Any:
    def make(fake: str = "", **more: Any) -> HarnessConfig:
        notes, work = tmp_path / "notes", tmp_path / "work"
        notes.mkdir(exist_ok=True)
        work.mkdir(exist_ok=True)
        env = {"TURNLOG_OPENCODE_BIN": str(program), "FAKE": fake, "FAKE_DIR": str(notes), **more.pop("env", {})}
        return HarnessConfig(cwd=work, title="t", state_dir=tmp_path / "state", env=env, **more)

    return make


def starts(tmp_path: Path) -> list[dict[str, Any]]:
    return [msgspec.json.decode(path.read_bytes()) for path in sorted((tmp_path / "notes").glob("start-*"))]


def runs(pid: int) -> bool:
    known = identify(pid)
    return known is not None and liveness(known.boot_id, pid, known.started_at) is Liveness.ALIVE


def test_start_and_stop(config: Any, tmp_path: Path) -> None:
    async def run() -> None:
        server = Engine(config())
        identity = await server.start()
        assert identity.pid is not None
        assert runs(identity.pid)
        assert await server.start() == identity, "idempotent while it runs"
        assert (identity.version, server.owned, await server.alive()) == ("1.18.33", True, True)
        (log,) = (tmp_path / "state").glob("*.log")
        assert log.read_text() == "Warning: hello\n"
        assert {path.stat().st_mode & 0o777 for path in (tmp_path / "state").iterdir()} == {0o600}
        (password,) = (tmp_path / "state").glob("*.password")
        assert len(password.read_text()) >= 32
        await server.stop()
        assert not runs(identity.pid)
        assert not await server.alive()
        assert [path.suffix for path in (tmp_path / "state").iterdir()] == [".log"], "the secret is gone"
        await server.stop()

    asyncio.run(run())
    (start,) = starts(tmp_path)
    assert start["argv"][:3] == ["serve", "--hostname", "127.0.0.1"]


def test_the_environment_is_the_users_plus_what_the_pages_name(
    config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENCODE_PERMISSION", "npm_config_registry", *engine.OFF_SWITCHES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENCODE_DISABLE_MODELS_FETCH", "0")
    monkeypatch.setenv("SOMETHING", "else")

    async def run() -> None:
        for policy in ("allow", "ask"):
            server = Engine(config(permissions=policy))
            await server.start()
            await server.stop()

    asyncio.run(run())
    allow, ask = (start["env"] for start in starts(tmp_path))
    added = {name for name in allow if name not in os.environ and not name.startswith(("FAKE", "TURNLOG_", "LC_"))}
    assert added == {*engine.OFF_SWITCHES, "OPENCODE_SERVER_PASSWORD", "OPENCODE_SERVER_USERNAME"} - {
        "OPENCODE_DISABLE_MODELS_FETCH"
    }
    assert allow["OPENCODE_DISABLE_MODELS_FETCH"] == "0", "the user's own word counts"
    assert allow["SOMETHING"] == "else"
    assert "npm_config_registry" not in allow, "the agent's own npm must go on working"
    assert msgspec.json.decode(ask["OPENCODE_PERMISSION"])["*"] == "ask"
    assert allow["OPENCODE_SERVER_PASSWORD"] != ask["OPENCODE_SERVER_PASSWORD"]


def test_a_taken_port_is_changed(config: Any, tmp_path: Path) -> None:
    async def run() -> None:
        server = Engine(config("taken"))
        await server.start()
        await server.stop()
        with pytest.raises(UnavailableError, match="no free port"):
            await Engine(config("always taken")).start()

    asyncio.run(run())
    ports = [start["argv"][-1] for start in starts(tmp_path)]
    assert len(ports) == 2 + engine.PORT_TRIES
    assert ports[0] != ports[1]
    assert list((tmp_path / "state").glob("*.password")) == []


def test_an_early_end_is_explained_without_secrets(config: Any) -> None:
    async def run() -> None:
        with pytest.raises(UnavailableError, match=r"ended with code 1.*token=\[redacted\]") as caught:
            await Engine(config("exit")).start()
        assert ".log" in caught.value.hint

    asyncio.run(run())


@pytest.mark.parametrize("fake", ["", "exit", "old"])
def test_a_version_that_is_too_old(config: Any, tmp_path: Path, fake: str) -> None:
    async def run() -> None:
        with pytest.raises(UnavailableError, match=r"1\.0\.9.*too old") as caught:
            await Engine(config(fake, env={"FAKE_VERSION": "1.0.9"})).start()
        assert "1.1.0" in caught.value.hint

    asyncio.run(run())
    assert list((tmp_path / "state").glob("*.json")) == []


def test_a_server_that_is_never_ready_is_ended(config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "READY_DEADLINE", 0.6)

    async def run() -> None:
        server = Engine(config("hang"))
        with pytest.raises(UnavailableError, match="not ready within"):
            await server.start()

    asyncio.run(run())
    assert [p for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(p.info["cmdline"] or [])] == []


def test_a_cancelled_start_leaves_nothing(config: Any, tmp_path: Path) -> None:
    async def run() -> None:
        starting = asyncio.create_task(Engine(config("hang")).start())
        await until(lambda: bool(starts(tmp_path)))
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    asyncio.run(run())
    assert list((tmp_path / "state").glob("*.json")) == []
    assert [p for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(p.info["cmdline"] or [])] == []


def test_stop_ends_what_the_server_started(config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnlog.harness._process.TERM_GRACE", 0.3)

    async def run() -> int:
        server = Engine(config("child"))
        await server.start()
        child = int((tmp_path / "notes" / "child").read_text())
        assert runs(child)
        await server.stop()
        return child

    assert not runs(asyncio.run(run())), "it has a session of its own and does not heed TERM"


def test_a_missing_program(config: Any, tmp_path: Path) -> None:
    async def run() -> None:
        with pytest.raises(UnavailableError, match="TURNLOG_OPENCODE_BIN"):
            await Engine(config(env={"TURNLOG_OPENCODE_BIN": str(tmp_path / "nothing")})).start()

    asyncio.run(run())


def test_an_engine_that_died_is_started_again(config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "ANSWER_DEADLINE", 0.5)

    async def run() -> None:
        server = Engine(config())
        first = await server.start()
        assert first.pid is not None
        os.kill(first.pid, signal.SIGSTOP)  # alive, but it answers nothing
        second = await server.start()
        assert second.pid != first.pid
        assert not runs(first.pid)
        assert second.pid is not None
        os.kill(second.pid, signal.SIGKILL)
        await until(server.gone)
        third = await server.start()
        assert third.pid not in {first.pid, second.pid}
        assert len(list((tmp_path / "state").glob("*.password"))) == 1
        await server.stop()

    asyncio.run(run())


def test_preflight_starts_nothing(config: Any, tmp_path: Path) -> None:
    async def run() -> None:
        await Engine(config()).preflight()
        await Engine(config(endpoint="http://127.0.0.1:9")).preflight()
        with pytest.raises(UnavailableError, match="too old"):
            await Engine(config(env={"FAKE_VERSION": "1.0.9"})).preflight()
        with pytest.raises(UnavailableError, match="TURNLOG_OPENCODE_BIN"):
            await Engine(config(env={"TURNLOG_OPENCODE_BIN": "/nothing"})).preflight()
        with pytest.raises(InvalidError, match="endpoint"):
            await Engine(config(endpoint="ftp://x")).preflight()

    asyncio.run(run())
    assert starts(tmp_path) == []


# --- left running -----------------------------------------------------------------------------------------------------


def record(tmp_path: Path) -> tuple[Path, Record]:
    (path,) = (tmp_path / "state").glob("*.json")
    return path, msgspec.json.decode(path.read_bytes(), type=Record)


def test_a_detached_engine_is_adopted_and_ended(config: Any, tmp_path: Path) -> None:
    async def run() -> None:
        first = Engine(config())
        identity = await first.start()
        await first.detach()
        assert identity.pid is not None
        assert runs(identity.pid)
        assert record(tmp_path)[1].owner is None
        second = Engine(config())
        assert await second.start() == identity
        assert second.owned
        assert record(tmp_path)[1].owner == identify()
        await second.stop()
        assert not runs(identity.pid)

    asyncio.run(run())
    assert len(starts(tmp_path)) == 1


@pytest.mark.parametrize("again", [False, True], ids=["adopted", "started twice"])
def test_an_engine_that_answers_slowly_is_not_taken_for_dead(config: Any, tmp_path: Path, again: bool) -> None:
    """On a busy machine an answer takes long: another engine would work on the same conversation beside it."""
    hold = tmp_path / "notes" / "hold"

    def asked() -> int:
        return len(list(hold.parent.glob("asked-*")))

    async def run() -> None:
        first = Engine(config())
        identity = await first.start()
        if not again:
            await first.detach()
        hold.touch()
        before = asked()
        second = first if again else Engine(config())
        starting = asyncio.create_task(second.start())
        await until(lambda: asked() >= before + 3)
        hold.unlink()
        assert await starting == identity
        await second.stop()

    asyncio.run(run())
    assert len(starts(tmp_path)) == 1


def test_an_engine_with_a_living_owner_or_another_purpose_is_not_adopted(config: Any, tmp_path: Path) -> None:
    async def run() -> None:
        first = Engine(config())
        identity = await first.start()
        second = Engine(config())
        other = await second.start()
        assert other.pid != identity.pid
        await second.stop()
        await first.detach()
        for different in (config(permissions="allow"), msgspec.structs.replace(config(), cwd=tmp_path)):
            third = Engine(different)
            assert (await third.start()).pid != identity.pid
            await third.stop()
        last = Engine(config(permissions="allow", adopt_any=True))
        assert await last.start() == identity, "with the policy it was started with"
        await last.stop()

    asyncio.run(run())


def test_an_endpoint_of_ours_is_reached_with_its_password_and_never_stopped(config: Any, tmp_path: Path) -> None:
    async def run() -> None:
        owner = Engine(config())
        identity = await owner.start()
        guest = Engine(config(endpoint=identity.endpoint))
        assert await guest.start() == msgspec.structs.replace(identity, permissions=None)
        assert not guest.owned
        await guest.stop()
        assert identity.pid is not None
        assert runs(identity.pid)
        guest = Engine(config(endpoint=identity.endpoint))
        await guest.start()
        os.kill(identity.pid, signal.SIGKILL)
        await until(guest.gone)
        assert not await guest.alive()
        await guest.detach()
        await owner.stop()

    asyncio.run(run())


def test_records_of_dead_engines_are_cleared(config: Any, tmp_path: Path) -> None:
    async def run() -> None:
        first = Engine(config())
        identity = await first.start()
        await first.detach()
        assert identity.pid is not None
        os.kill(identity.pid, signal.SIGKILL)
        await until(lambda: not runs(identity.pid or 0))
        second = Engine(config())
        assert (await second.start()).pid != identity.pid
        assert len(list((tmp_path / "state").glob("*.password"))) == 1
        await second.stop()

    asyncio.run(run())
