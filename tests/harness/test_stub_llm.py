"""The model stub: the same answer in three dialects, streamed and whole, and its faults."""

from __future__ import annotations

import gzip
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from turnlog.testing.stub.plan import MODES, find_marker
from turnlog.testing.stub_llm import StubLlm
from turnlog.wire.sse import SseDecoder, SseEvent

TOOLS = {
    "chat": [{"type": "function", "function": {"name": "bash"}}, {"type": "function", "function": {"name": "task"}}],
    "responses": [
        {"type": "function", "name": "exec_command"},
        {"type": "namespace", "name": "agents", "tools": [{"name": "spawn_agent"}]},
    ],
    "anthropic": [{"name": "Bash"}, {"name": "Read"}, {"name": "Agent"}],
}
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "anthropic": "/v1/messages"}


@pytest.fixture
def stub() -> Iterator[StubLlm]:
    with StubLlm() as running:
        yield running


@pytest.fixture
def client(stub: StubLlm) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=stub.url, trust_env=False, timeout=10) as client:
        yield client


def body(api: str, text: str, results: int = 0, *, stream: bool = False, tools: bool = True) -> dict[str, Any]:
    user = {"role": "user", "content": text}
    made: dict[str, Any] = {"model": "m", "stream": stream}
    if api == "chat":
        made["messages"] = [user, *({"role": "tool", "content": "r"} for _ in range(results))]
    elif api == "responses":
        made["input"] = [user, *({"type": "function_call_output", "output": "r"} for _ in range(results))]
    else:
        made["messages"] = [user]
        if results:
            made["messages"].append({"role": "user", "content": [{"type": "tool_result"}] * results})
    return {**made, "tools": TOOLS[api]} if tools else made


def said(api: str, answer: dict[str, Any]) -> tuple[str, list[str], str]:
    """Return text, called tools and reason of a whole answer."""
    if api == "chat":
        (choice,) = answer["choices"]
        calls = [call["function"]["name"] for call in choice["message"].get("tool_calls", [])]
        return choice["message"]["content"], calls, choice["finish_reason"]
    blocks = answer["output" if api == "responses" else "content"]
    if api == "responses":
        text = "".join(part["text"] for item in blocks if item["type"] == "message" for part in item["content"])
        return text, [item["name"] for item in blocks if item["type"] == "function_call"], answer["status"]
    text = "".join(block["text"] for block in blocks if block["type"] == "text")
    return text, [block["name"] for block in blocks if block["type"] == "tool_use"], answer["stop_reason"]


@pytest.mark.parametrize("api", PATHS)
def test_the_modes_that_answer(client: httpx.Client, api: str) -> None:
    def ask(text: str, results: int = 0, **more: Any) -> tuple[str, list[str], str]:
        return said(api, client.post(PATHS[api], json=body(api, text, results, **more)).raise_for_status().json())

    shell = {"chat": "bash", "responses": "exec_command", "anthropic": "Bash"}[api]
    agent = {"chat": "task", "responses": "spawn_agent", "anthropic": "Agent"}[api]
    reader = {"chat": "bash", "responses": "exec_command", "anthropic": "Read"}[api]
    assert ask("no marker")[0] == "stub answer"
    assert ask("[[stub: text text=a_b]] x [[stub: text text=last]]")[0] == "last"
    assert ask("[[stub: tool]]")[1] == [shell]
    assert ask("[[stub: tool]]", 1)[:2] == ("stub answer", [])
    assert ask("[[stub: tools2]]")[1] == [shell, shell]
    assert ask("[[stub: read]]")[1] == [reader]
    assert ask("[[stub: subagent]]")[1] == [agent]
    assert [ask("[[stub: loop n=2]]", results)[1] for results in range(3)] == [[shell], [shell], []]
    assert ask("[[stub: tool]]", tools=False)[:2] == ("stub answer", []), "no tool is offered"
    assert ask("[[stub: refusal]]")[:2] == ("", [])
    limit = {"chat": "length", "responses": "incomplete", "anthropic": "max_tokens"}[api]
    assert ask("[[stub: length]]")[2] == limit


def test_tokens_are_the_same_everywhere(client: httpx.Client) -> None:
    text = "[[stub: text in=7 out=3 rs=1]]"
    chat, responses, anthropic = (client.post(PATHS[api], json=body(api, text)).json()["usage"] for api in PATHS)
    assert (chat["prompt_tokens"], chat["completion_tokens"], chat["total_tokens"]) == (607, 3, 610)
    assert chat["prompt_tokens_details"]["cached_tokens"] == 400
    assert chat["completion_tokens_details"]["reasoning_tokens"] == 1
    assert (responses["input_tokens"], responses["output_tokens"]) == (607, 3)
    assert responses["input_tokens_details"]["cache_write_tokens"] == 200
    assert (anthropic["input_tokens"], anthropic["output_tokens"]) == (7, 3)
    assert (anthropic["cache_read_input_tokens"], anthropic["cache_creation_input_tokens"]) == (400, 200)
    assert sum(anthropic["cache_creation"].values()) == 200


def events(answer: httpx.Response) -> list[Any]:
    decoder = SseDecoder()
    return [event for event in decoder.feed(answer.content + b"\n") if isinstance(event, SseEvent)]


@pytest.mark.parametrize("api", PATHS)
@pytest.mark.parametrize("mode", ["text", "think", "tool", "length", "slow n=3 delay=0"])
def test_a_stream_says_what_the_whole_answer_says(client: httpx.Client, api: str, mode: str) -> None:
    text = f"[[stub: {mode}]]"
    whole, _, _ = said(api, client.post(PATHS[api], json=body(api, text)).json())
    streamed = events(client.post(PATHS[api], json=body(api, text, stream=True)))
    pieces = []
    for event in streamed:
        data = httpx.Response(200, content=event.data).json() if event.data != "[DONE]" else {}
        if api == "chat":
            pieces += [choice["delta"].get("content") or "" for choice in data.get("choices", [])]
        elif api == "responses" and event.event == "response.output_text.delta":
            pieces.append(data["delta"])
        elif api == "anthropic" and event.event == "content_block_delta":
            pieces.append(data["delta"].get("text", ""))
    assert "".join(pieces) == whole
    last = {"chat": "[DONE]", "responses": '"type":"response.', "anthropic": '"message_stop"'}[api]
    assert last in streamed[-1].data


@pytest.mark.parametrize("api", PATHS)
def test_faults(client: httpx.Client, stub: StubLlm, api: str) -> None:
    def ask(text: str, **more: Any) -> httpx.Response:
        return client.post(PATHS[api], json=body(api, text, **more))

    for status in (400, 401, 500, 529):
        answer = ask(f"[[stub: error{status}]]")
        assert answer.status_code == status
        assert answer.json()["error"]["message"] == f"stub error {status}"
    assert [ask("[[stub: flaky429 fail=2]]").status_code for _ in range(3)] == [429, 429, 200]
    assert ask("[[stub: flaky429 after=0 x]]").headers["retry-after"] == "0"
    assert [ask("[[stub: flaky500]]").status_code for _ in range(2)] == [500, 200]
    stub.reset()
    assert ask("[[stub: flaky500]]").status_code == 500
    with pytest.raises(httpx.RemoteProtocolError):
        ask("[[stub: cut]]", stream=True)
    assert "stub in-band error" in ask("[[stub: inband]]", stream=True).text
    assert ask("[[stub: nonsense]]").status_code == 400
    assert [entry["outcome"] for entry in stub.log()] == ["500", "cut", "200"]


def test_hangs_end_at_a_release_and_are_seen(client: httpx.Client, stub: StubLlm) -> None:
    answers: list[httpx.Response] = []
    for mode in ("hang", "hanghdr"):

        def ask(mode: str = mode) -> None:
            answers.append(client.post(PATHS["chat"], json=body("chat", f"[[stub: {mode}]]", stream=True)))

        thread = threading.Thread(target=ask)
        thread.start()
        stub.wait(lambda log, mode=mode: [e["mode"] for e in log if e["outcome"] is None] == [mode])  # type: ignore[misc]
        assert client.post("/_stub/release").json() == {"ok": True}
        thread.join(10)
    assert [answer.status_code for answer in answers] == [200, 200]
    assert all("[DONE]" in answer.text for answer in answers)


def test_a_client_that_leaves_a_hang_is_noticed(client: httpx.Client, stub: StubLlm) -> None:
    with pytest.raises(httpx.ReadTimeout):
        client.post(PATHS["chat"], json=body("chat", "[[stub: hanghdr]]"), timeout=0.2)
    stub.wait(lambda log: log[-1]["outcome"] == "client_gone")


def test_a_title_is_asked_by_nobody_who_counts(client: httpx.Client, stub: StubLlm) -> None:
    request = {
        "model": "m",
        "messages": [
            {"role": "system", "content": "You are a title generator"},
            {"role": "user", "content": "[[stub: error400]]"},
        ],
    }
    answer = client.post(PATHS["chat"], json=request).json()
    assert answer["choices"][0]["message"]["content"] == "Stub title"
    assert answer["usage"]["total_tokens"] == 105
    assert stub.log()[-1]["helper"] is True


def test_other_routes(client: httpx.Client) -> None:
    assert client.get("/v1/models").json()["data"][0]["id"] == "stub-model"
    assert client.post("/v1/messages/count_tokens", json={}).json() == {"input_tokens": 1600}
    assert client.head("/").status_code == 200
    assert client.get("/nothing").status_code == 404
    assert client.post("/nothing", json={}).status_code == 404
    assert client.post(PATHS["chat"], content=b"{").status_code == 400
    packed = gzip.compress(b'{"model":"m","input":"[[stub: text text=zipped]]"}')
    answer = client.post(PATHS["responses"], content=packed, headers={"content-encoding": "gzip"})
    assert said("responses", answer.json())[0] == "zipped"
    chunks = iter([b'{"model":"m",', b'"input":"x"}'])
    assert client.post(PATHS["responses"], content=chunks).status_code == 200
    assert client.get("/_stub/log").json()[0]["api"] == "responses"


def test_after_its_end_nothing_is_answered_on_connections_that_were_kept(client: httpx.Client, stub: StubLlm) -> None:
    assert client.get("/v1/models").status_code == 200
    stub.close()
    with pytest.raises(httpx.TransportError):
        client.get("/v1/models")


def test_markers() -> None:
    assert find_marker("x").mode == "text"
    assert find_marker("[[stub: tool cmd=sleep_1 n=x]]").options == {"cmd": "sleep 1", "n": "x"}
    assert find_marker("[[stub: loop n=x]]").number("n", 3) == 3
    assert len(set(MODES)) == 20
    with pytest.raises(ValueError, match="unknown stub mode"):
        find_marker("[[stub: typo]]")


def test_as_a_program(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "turnlog.testing.stub_llm", "--port", "0", "--port-file", str(tmp_path / "port")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        line = running.stdout.readline()
        try:
            port = (tmp_path / "port").read_text()
            assert line == f"stub on http://127.0.0.1:{port}\n"
            assert httpx.get(f"http://127.0.0.1:{port}/v1/models", trust_env=False).status_code == 200
        finally:
            running.terminate()
