"""The harness suite on the three real programs, with the stub for a model."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import orjson
import pytest

from turnlog.harness import EngineIdentity, Harness, HarnessConfig, harness_for
from turnlog.testing.claude_home import claude_home
from turnlog.testing.codex_home import codex_home
from turnlog.testing.harness_suite import SECRET, VALUE, HarnessSuite
from turnlog.testing.opencode_home import opencode_home
from turnlog.testing.stub import plan as plans
from turnlog.testing.stub.plan import Answer, Call, Failure, Marker, View
from turnlog.testing.stub_llm import StubLlm

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

JSON = orjson.dumps(VALUE).decode()


@pytest.fixture(scope="module")
def stub() -> Iterator[StubLlm]:
    """A model whose errors hold a secret, and which answers where Claude offers a tool for structured answers."""
    whole = plans.plan

    def plan(marker: Marker, view: View) -> Answer:
        if marker.prose("text", "") == JSON and view.results < 1 and "StructuredOutput" in view.tools:
            return Answer((Call("StructuredOutput", VALUE),), "tool")
        return whole(marker, view)

    with pytest.MonkeyPatch.context() as patch, StubLlm() as running:
        patch.setattr("turnlog.testing.stub_llm.plan", plan)
        words = property(lambda failure: f"stub error {failure.status}, Authorization: Bearer {SECRET}")
        patch.setattr(Failure, "message", words)
        yield running


class Home:
    """Folders and environment of one program, for all its tests."""

    def __init__(self, provider: str, work: Path, env: dict[str, str], stub: StubLlm) -> None:
        self.provider = provider
        self.work = work
        self.env = env
        self.stub = stub


class ProgramLab:
    """A real program in a hermetic home."""

    structured = True
    steerable = True
    adoptable = False
    asks = True

    def __init__(self, home: Home, state: Path) -> None:
        self.provider = home.provider
        self.home = home
        self.name = f"made-{os.urandom(4).hex()}"
        self._state = state
        self._scenarios = {
            "text": "text",
            "tool": f"tool cmd=touch_{self.name}",
            "steps": "loop n=2 cmd=sleep_0.3",
            "error": "error400",
            "loop": "loop n=400 cmd=sleep_0.1",
            "slow": "slow n=600 delay=0.05",
            "hang": "hang",
            "structured": f"text text={JSON}",
        }

    @property
    def made(self) -> Path:
        return self.home.work / self.name

    def harness(self, *, mortal: bool = False, **config: Any) -> Harness:
        settings = {"title": self.name, "permissions": "allow", "state_dir": self._state, **config}
        return harness_for(self.provider)(HarnessConfig(cwd=self.home.work, env=self.home.env, **settings))

    def prompt(self, scenario: str) -> str:
        return f"[[stub: {self._scenarios[scenario]}]] go"

    def release(self) -> None:
        self.home.stub.release()

    async def kill_engine(self, harness: Harness) -> None:
        pid = (await harness.start()).pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    async def foreign_turn(self, thread: str) -> str | None:
        return None

    async def retell(self, harness: Harness, turn: str, text: str) -> bool:
        return False

    async def babble(self, harness: Harness) -> bool:
        return False


# --- OpenCode -------------------------------------------------------------------------------------------------------


class Server(Home):
    """One OpenCode for all tests that only attach."""

    state: Path

    async def start(self) -> EngineIdentity:
        harness = self._owner()
        self.identity = await harness.start()
        (password,) = self.state.glob("opencode-*.password")
        self.auth = ("opencode", password.read_text())
        await harness.detach()
        return self.identity

    async def stop(self) -> None:
        harness = self._owner()
        await harness.start()
        await harness.stop()

    def _owner(self) -> Harness:
        settings: dict[str, Any] = {"title": "owner", "permissions": "allow", "state_dir": self.state}
        return harness_for("opencode")(HarnessConfig(cwd=self.work, env=self.env, **settings))


class OpenCodeLab(ProgramLab):
    structured = False
    adoptable = True
    home: Server

    def harness(self, *, mortal: bool = False, **config: Any) -> Harness:
        if not mortal:
            port = urlsplit(self.home.identity.endpoint or "").port
            config["endpoint"] = f"http://{':'.join(self.home.auth)}@127.0.0.1:{port}"
        return super().harness(**config)

    async def foreign_turn(self, thread: str) -> str | None:
        endpoint = self.home.identity.endpoint or ""
        async with httpx.AsyncClient(base_url=endpoint, auth=self.home.auth, timeout=20, trust_env=False) as client:
            body = {"parts": [{"type": "text", "text": self.prompt("text")}]}
            answer = await client.post(f"/session/{thread}/message", json=body)
            return str(answer.json()["info"]["parentID"])


@pytest.fixture(scope="module")
def server(stub: StubLlm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = opencode_home(tmp_path_factory.mktemp("opencode"), stub.url)
    running = Server("opencode", made.work, made.env, stub)
    running.state = made.state
    asyncio.run(running.start())
    yield running
    asyncio.run(running.stop())


class TestOpenCode(HarnessSuite):
    @pytest.fixture
    def lab(self, server: Server, tmp_path: Path) -> OpenCodeLab:
        return OpenCodeLab(server, tmp_path / "state")


# --- Codex ----------------------------------------------------------------------------------------------------------


class TestCodex(HarnessSuite):
    @pytest.fixture
    def lab(self, stub: StubLlm, tmp_path: Path) -> ProgramLab:
        home = codex_home(tmp_path, stub.url)
        return ProgramLab(Home("codex", home.work, home.env, stub), tmp_path / "state")


# --- Claude ---------------------------------------------------------------------------------------------------------


class TestClaude(HarnessSuite):
    @pytest.fixture
    def lab(self, stub: StubLlm, tmp_path: Path) -> ProgramLab:
        home = claude_home(tmp_path, stub.url)
        return ProgramLab(Home("claude", home.work, {**home.env, "IS_SANDBOX": "1"}, stub), tmp_path / "state")
