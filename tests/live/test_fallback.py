"""Handing an input over to another provider: same capture, a new attempt, both visible (6.6)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.cli import HELD, Cli, until
from turnlog.testing.claude_home import claude_home
from turnlog.testing.codex_home import codex_home
from turnlog.testing.stub_llm import StubLlm

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]


@pytest.fixture
def models(tmp_path: Path) -> Iterator[tuple[Cli, StubLlm]]:
    """Codex on one model server, Claude on another, so that one of them can break."""
    with StubLlm() as first, StubLlm() as second:
        codex, claude = codex_home(tmp_path / "codex", first.url), claude_home(tmp_path / "claude", second.url)
        env = {**claude.env, "IS_SANDBOX": "1"} | {key: codex.env[key] for key in codex.env if key != "HOME"}
        yield Cli(tmp_path, codex.work, env, "codex"), first


def attempts(cli: Cli, key: str) -> list[tuple[str, str | None]]:
    with cli.ledger() as ledger:
        record = ledger.input_history(key)
    return [(each.attempt_key or "", each.outcome) for each in record.providers if each.kind == "recorded_attempt"]


def test_a_failure_without_effects_is_handed_over_in_the_same_input(models: tuple[Cli, StubLlm]) -> None:
    cli, codex_model = models
    codex_model.close()
    result = cli.run("[[stub: text text=from_claude]] go", "--fallback", "claude")
    assert (result["status"], result["provider"], result["answer"]) == ("completed", "claude", "from claude")
    assert attempts(cli, result["artifact_key"]) == [("attempt-1", "failed"), ("attempt-2", "completed")]
    with cli.ledger() as ledger:
        native = [each for each in ledger.input_history(result["artifact_key"]).providers if each.kind == "native_turn"]
        assert [each.outcome for each in native] == ["failed", "completed"]
        found = ledger.provider_session(result["artifact_key"])
        assert found is not None
        assert found.provider_session_id == result["thread"]
        assert len(ledger.session_inputs(result["session"])) == 1
        assert ledger.verify() == []
    assert cli.resume(result["session"], "[[stub: text text=on]]")["provider"] == "claude"


@pytest.mark.parametrize("anyway", [False, True])
def test_after_a_tool_ran_only_the_person_can_say_so(models: tuple[Cli, StubLlm], anyway: bool) -> None:
    cli, codex_model = models
    words = ["--fallback", "claude", "--permissions", "allow", *(["--fallback-after-effects"] if anyway else [])]
    running = cli.start("run", "--provider", "codex", *words, f"{HELD} go")
    until((cli.work / "made").exists, "the tool's effect")
    codex_model.close()
    (cli.work / "go").touch()
    result = running.result(0 if anyway else 1)
    assert result["status"] == ("completed" if anyway else "failed")
    assert result["provider"] == ("claude" if anyway else "codex")
    assert len(attempts(cli, result["artifact_key"])) == (2 if anyway else 0)


def test_a_fallback_that_is_the_provider_itself_is_refused(models: tuple[Cli, StubLlm]) -> None:
    cli, _ = models
    assert cli.run("go", "--fallback", "codex", code=2)["error"]["hint"]
