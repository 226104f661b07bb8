"""A deterministic stand-in for a model provider: loopback only, no account, always the same numbers.

    python -m turnlog.testing.stub_llm --port 0 --port-file F

Speaks OpenAI Chat Completions (``…/chat/completions``) and Responses (``…/responses``), Anthropic Messages
(``…/messages``, ``…/messages/count_tokens``) and ``…/models``, streamed or whole as the request asks.

The newest user text picks the answer by a marker ``[[stub: MODE key=value …]]`` (no marker: ``text``):

    text think length refusal                 text=… is the answer ("_" stands for a space)
    tool tools2 loop read subagent            cmd=… path=… n=… (loop) sub=MODE (what a subagent is told)
    error400 error401 error500 error529       status=… for another one; each time
    flaky429 flaky500                         fail=1 times the error (429: Retry-After, after=1), then text
    slow                                      n=40 words, delay=0.25 seconds before each
    hang hanghdr                              after the first piece / before the headers: silent until released
    cut inband                                the stream breaks / carries an error event

Every call costs in=1000 fresh, cr=400 cache read, cw=200 cache write, out=50 output of which rs=20 reasoning.
A request for a conversation's title is answered "Stub title". A mode that needs a tool answers its text when the
agent offers none.

Control: ``GET /_stub/log`` (what was asked), ``POST /_stub/release`` (end all hangs), ``POST /_stub/reset``.
"""

from __future__ import annotations

import argparse
import gzip
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Self

import orjson

from turnlog.testing.stub import anthropic, chat, responses
from turnlog.testing.stub.plan import Answer, Failure, Pause, failure, find_marker, is_helper, plan, title

LONGEST_HANG: Final = 600.0
_DIALECTS: Final = {"/chat/completions": chat, "/responses": responses, "/messages": anthropic}
_POLL: Final = 0.05


class StubLlm:
    """A running stub, as a context manager. ``url`` is its base URL without ``/v1``."""

    def __init__(self, port: int = 0) -> None:
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.stub = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._changed = threading.Condition()
        self._log: list[dict[str, Any]] = []
        self._failures: Counter[str] = Counter()
        self._released = 0
        self._closed = False
        self._number = 0

    @property
    def port(self) -> int:
        return int(self._server.server_port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def closed(self) -> bool:
        return self._closed

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the server: what is asked afterwards is refused. Idempotent."""
        if not self._closed:
            self._closed = True
            self.release()
            self._server.shutdown()
            self._server.server_close()

    def log(self) -> list[dict[str, Any]]:
        """Return what was asked: ``{n, api, path, mode, user, results, tools, helper, stream, model, outcome}``.

        ``outcome`` is None while the request is being answered.
        """
        with self._changed:
            return [dict(entry) for entry in self._log]

    def wait(self, found: Callable[[list[dict[str, Any]]], bool], seconds: float = 20.0) -> list[dict[str, Any]]:
        """Wait until the log satisfies a condition and return it. Raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: found(self._log), seconds):
                raise TimeoutError(f"the stub saw {self._log}")
            return [dict(entry) for entry in self._log]

    def release(self) -> None:
        """Let every hanging answer go on to its end."""
        with self._changed:
            self._released += 1
            self._changed.notify_all()

    def reset(self) -> None:
        """Forget the log and all counted failures."""
        with self._changed:
            self._log.clear()
            self._failures.clear()

    # --- for the handler --------------------------------------------------------------------------------------------

    def begin(self, entry: dict[str, Any]) -> dict[str, Any]:
        """Log a request and return its entry, with its number."""
        with self._changed:
            self._number += 1
            entry = {"n": self._number, **entry, "outcome": None}
            self._log.append(entry)
            self._changed.notify_all()
            return entry

    def end(self, entry: dict[str, Any], outcome: str) -> None:
        """Log how a request ended."""
        with self._changed:
            entry["outcome"] = outcome
            self._changed.notify_all()

    def earlier_failures(self, marker: str) -> int:
        """Count a request of a marker; return how many there were before."""
        with self._changed:
            self._failures[marker] += 1
            return self._failures[marker] - 1

    def releases(self) -> int:
        """Return how often hangs were released so far."""
        with self._changed:
            return self._released

    def hang(self, before: int, gone: Callable[[], bool]) -> bool:
        """Wait for a release after the first ``before``; False when the client left before it.

        ``before`` is counted when the request came, so a release cannot fall between the request and its hang.
        """
        until = time.monotonic() + LONGEST_HANG
        with self._changed:
            while self._released == before and time.monotonic() < until:
                self._changed.wait(_POLL)
                if gone():
                    return False
        return True


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    stub: StubLlm

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients leave in the middle of a stream; that is what some modes are for."""


class _CutError(Exception):
    """The stream is to break here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: Any) -> None:
        """Say nothing: the log is asked for."""

    def parse_request(self) -> bool:
        """Take a request, unless the stub was closed: a client may have kept its connection."""
        if self.server.stub.closed:
            self.close_connection = True
            return False
        return super().parse_request()

    def do_HEAD(self) -> None:
        self._json(200, {})

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        if path == "/_stub/log":
            self._json(200, self.server.stub.log())
        elif path.endswith("/models"):
            model = {"id": "stub-model", "object": "model", "created": 0, "owned_by": "stub"}
            self._json(200, {"object": "list", "data": [model]})
        else:
            self._json(404, {"error": {"message": "stub: no such path", "type": "not_found"}})

    def do_POST(self) -> None:
        raw = self._body()
        path = self.path.split("?")[0]
        stub = self.server.stub
        if path == "/_stub/release":
            stub.release()
            self._json(200, {"ok": True})
        elif path == "/_stub/reset":
            stub.reset()
            self._json(200, {"ok": True})
        elif path.endswith("/messages/count_tokens"):
            self._json(200, {"input_tokens": 1600})
        else:
            dialect = next((found for ending, found in _DIALECTS.items() if path.endswith(ending)), None)
            try:
                body = orjson.loads(raw or b"{}")
            except orjson.JSONDecodeError:
                body = None
            if dialect is None or not isinstance(body, dict):
                status = 404 if dialect is None else 400
                self._json(status, {"error": {"message": "stub: no such path, or not JSON", "type": "not_found"}})
            else:
                self._model(dialect, path, body)

    def _model(self, dialect: ModuleType, path: str, body: dict[str, Any]) -> None:
        stub = self.server.stub
        view = dialect.read(body)
        helper = is_helper(view)
        try:
            marker = find_marker("" if helper else view.user)
        except ValueError as error:
            self._json(400, {"error": {"message": str(error), "type": "invalid_request_error"}})
            return
        self._before = stub.releases()
        entry = stub.begin(
            {
                "api": dialect.NAME,
                "path": path,
                "mode": marker.mode,
                "user": view.user[-200:],
                "results": view.results,
                "tools": sorted(view.tools),
                "helper": helper,
                "stream": bool(body.get("stream")),
                "model": body.get("model"),
            }
        )
        outcome = "client_gone"
        try:
            earlier = stub.earlier_failures(marker.text) if marker.mode.startswith("flaky") else 0
            failed = None if helper else failure(marker, earlier)
            if failed is not None:
                self._fail(dialect, failed)
                outcome = str(failed.status)
                return
            if marker.mode == "hanghdr" and not stub.hang(self._before, self._client_gone):
                self.close_connection = True
                return
            answer = title() if helper else plan(marker, view)
            self._answer(dialect, answer, f"stub{entry['n']:06d}", body)
            outcome = "200"
        except _CutError:
            outcome = "cut"
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            self.close_connection = True
        finally:
            stub.end(entry, outcome)

    def _fail(self, dialect: ModuleType, failed: Failure) -> None:
        headers = {"Retry-After": failed.retry_after} if failed.retry_after is not None else {}
        self._json(failed.status, dialect.error(failed), headers)

    def _answer(self, dialect: ModuleType, answer: Answer, request: str, body: dict[str, Any]) -> None:
        model = str(body.get("model"))
        if not body.get("stream"):
            self._json(200, dialect.whole(answer, request, model))
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("x-request-id", f"req_{request}")
        self.end_headers()
        for step in dialect.events(answer, request, model):
            if isinstance(step, Pause):
                self._pause(step, answer)
            else:
                chunk = step.encode()
                self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def _pause(self, pause: Pause, answer: Answer) -> None:
        if pause is Pause.CUT:
            raise _CutError
        if pause is Pause.BEAT:
            time.sleep(answer.beat)
        elif not self.server.stub.hang(self._before, self._client_gone):
            raise ConnectionResetError

    def _client_gone(self) -> bool:
        """Tell whether the client closed its side, without taking its bytes."""
        try:
            peeked: bytes = self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return not peeked

    def _body(self) -> bytes:
        if "chunked" in (self.headers.get("Transfer-Encoding") or ""):
            raw = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                raw += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return gzip.decompress(raw) if self.headers.get("Content-Encoding") == "gzip" else raw

    def _json(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        content = orjson.dumps(value)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        for name, text in (headers or {}).items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def main() -> None:
    """Run a stub until it is ended."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0, help="0: any free port")
    parser.add_argument("--port-file", type=Path, help="file that gets the port once it listens")
    arguments = parser.parse_args()
    with StubLlm(arguments.port) as stub:
        if arguments.port_file:
            temporary = arguments.port_file.with_name(f"{arguments.port_file.name}.{os.getpid()}")
            temporary.write_text(str(stub.port), encoding="ascii")
            temporary.replace(arguments.port_file)
        print(f"stub on {stub.url}", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
