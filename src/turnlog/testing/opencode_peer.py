"""A scripted OpenCode: real sockets and the real routes, but every message and every fault is the test's.

    with OpenCodePeer() as peer:
        thread = peer.session("title")
        peer.put(thread, assistant("msg_b", parent="msg_a", finish="stop", texts=["hi"]))
        peer.emit("message.updated", info={...})

The list of a session is what ``put`` made it; ``put`` also sends the event OpenCode would send, unless told not to.
Faults are armed for the next matching request: ``lose`` (the request arrives, the connection drops), ``fail`` (an HTTP
error), ``stall`` (accepted and never answered). Stdlib only.
"""

from __future__ import annotations

import base64
import contextlib
import queue
import re
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self
from urllib.parse import parse_qs, urlsplit

import msgspec
import orjson

VERSION: Final = "1.18.33"
Json = dict[str, Any]


class Seen(msgspec.Struct, frozen=True):
    """One request that arrived."""

    method: str
    path: str
    query: dict[str, str]
    body: Any


class Fault(msgspec.Struct):
    """What happens to the next request whose ``METHOD path`` matches ``pattern``.

    ``store``: whether the request still has its effect. ``times``: how many requests it hits.
    """

    pattern: str
    kind: str
    status: int = 500
    detail: str = "peer says no"
    store: bool = False
    times: int = 1


def assistant(
    name: str,
    parent: str,
    *,
    created: int = 1,
    completed: int | None = None,
    finish: str | None = None,
    error: Any = None,
    texts: list[str] | None = None,
    tools: list[Json] | None = None,
    tokens: Json | None = None,
    **info: Any,
) -> Json:
    """Return an assistant message as the list shows it, without its session. ``texts`` are ended text parts."""
    time_: Json = {"created": created}
    if completed is not None:
        time_["completed"] = completed
    head: Json = {"id": name, "role": "assistant", "parentID": parent, "time": time_, "cost": 0, **info}
    head["tokens"] = tokens or {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}
    if finish is not None:
        head["finish"] = finish
    if error is not None:
        head["error"] = error
    parts: list[Json] = [
        {"id": f"prt_{name}_{number}", "type": "text", "text": text, "time": {"start": created, "end": created + 1}}
        for number, text in enumerate(texts or [])
    ]
    return {"info": head, "parts": [*parts, *(tools or [])]}


def user(name: str, text: str = "hello", *, created: int = 0) -> Json:
    """Return a user message as the list shows it."""
    parts = [{"id": f"prt_{name}", "type": "text", "text": text}]
    return {"info": {"id": name, "role": "user", "time": {"created": created}}, "parts": parts}


def tool(name: str, state: str, *, kind: str = "bash", child: str | None = None, **more: Any) -> Json:
    """Return a tool part. ``child`` is the session of a subagent."""
    body: Json = {"status": state, "input": {}, "time": {"start": 10, "end": 15}, **more}
    if child is not None:
        body["metadata"] = {"sessionId": child}
    return {"id": f"prt_{name}", "type": "tool", "tool": kind, "callID": name, "state": body}


class OpenCodePeer:
    """The server, as a context manager."""

    def __init__(self, *, password: str | None = None, version: str = VERSION, ready: bool = True) -> None:
        self.version = version
        self.password = password
        self.ready = ready
        """While False, connections are accepted and never answered, like those of a server that starts."""
        self.paging = True
        """False: like versions before 1.2, no cursors."""
        self.agents: Any = []
        self.providers: Any = []
        self.answers: Callable[[str, str, str], None] | None = None
        """Called with session, request id and text for every prompt that was stored."""
        self.seen: list[Seen] = []
        self.permissions: list[Json] = []
        self.statuses: dict[str, Json] = {}
        self.sessions: dict[str, Json] = {}
        self._messages: dict[str, list[Json]] = {}
        self._faults: list[Fault] = []
        self._streams: set[queue.Queue[bytes | None]] = set()
        self._changed = threading.Condition()
        self._closing = False
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.peer = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the server as a killed process would: all connections break, none is accepted."""
        if not self._closing:
            self._closing = True
            self._server.shutdown()
            self._server.break_connections()
            self._server.server_close()
            self.end_streams()
            with self._changed:
                self._changed.notify_all()

    # --- the script -------------------------------------------------------------------------------------------------

    def session(self, title: str = "peer", *, name: str | None = None, parent: str | None = None, **more: Any) -> str:
        """Make a session and return its id."""
        identifier = name or f"ses_{len(self.sessions):04d}"
        entry = {"id": identifier, "title": title, "version": self.version, "directory": "/peer", **more}
        if parent is not None:
            entry["parentID"] = parent
        self.sessions[identifier] = entry
        self._messages.setdefault(identifier, [])
        self.emit("session.created", info=entry)
        return identifier

    def put(self, thread: str, *messages: Json, tell: bool = True) -> None:
        """Add messages to a list or replace those of the same id; ``tell`` sends the event."""
        with self._changed:
            for message in messages:
                message["info"]["sessionID"] = thread
                for part in message["parts"]:
                    part |= {"sessionID": thread, "messageID": message["info"]["id"]}
            held = {message["info"]["id"]: message for message in (*self._messages[thread], *messages)}
            self._messages[thread] = sorted(
                held.values(), key=lambda message: (message["info"]["time"]["created"], message["info"]["id"])
            )
        if tell:
            for message in messages:
                self.emit("message.updated", sessionID=thread, info=message["info"])

    def status(self, thread: str, kind: str, **more: Any) -> None:
        """Set what ``GET /session/status`` says (``idle`` is not listed) and send the event."""
        if kind == "idle":
            self.statuses.pop(thread, None)
        else:
            self.statuses[thread] = {"type": kind, **more}
        self.emit("session.status", sessionID=thread, status={"type": kind, **more})

    def delta(self, thread: str, message: str, part: str, text: str) -> None:
        """Stream a piece of text."""
        self.emit("message.part.delta", sessionID=thread, messageID=message, partID=part, field="text", delta=text)

    def ask(self, thread: str, name: str, *, message: str | None = None, call: str | None = None, **more: Any) -> None:
        """Ask for a permission."""
        entry: Json = {
            "id": name,
            "sessionID": thread,
            "permission": "bash",
            "patterns": ["ls"],
            "metadata": {},
            **more,
        }
        if message is not None:
            entry["tool"] = {"messageID": message, "callID": call}
        self.permissions.append(entry)
        self.emit("permission.asked", **entry)

    def emit(self, kind: str, **properties: Any) -> None:
        """Send an event to every open stream."""
        self.send(b"data: " + orjson.dumps({"id": "evt", "type": kind, "properties": properties}) + b"\n\n")

    def send(self, data: bytes) -> None:
        """Send raw bytes to every open stream."""
        with self._changed:
            for stream in self._streams:
                stream.put(data)

    def end_streams(self) -> None:
        """End every open event stream, as a restarting proxy would."""
        with self._changed:
            for stream in self._streams:
                stream.put(None)

    def lose(self, pattern: str, *, store: bool, times: int = 1) -> None:
        """Drop the connection of the next matching request instead of answering, with or without its effect."""
        self._faults.append(Fault(pattern, "lose", store=store, times=times))

    def fail(self, pattern: str, status: int, detail: str = "peer says no", times: int = 1) -> None:
        """Answer the next matching request with an error, without its effect."""
        self._faults.append(Fault(pattern, "fail", status, detail, times=times))

    def stall(self, pattern: str, times: int = 1) -> None:
        """Accept the next matching request and never answer."""
        self._faults.append(Fault(pattern, "stall", times=times))

    def wait(self, found: Callable[[], bool], seconds: float = 10.0) -> None:
        """Wait until a condition holds that requests or streams can make true. Raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(found, seconds):
                raise TimeoutError([f"{seen.method} {seen.path}" for seen in self.seen])

    def count(self, pattern: str) -> int:
        """Count requests whose ``METHOD path`` matches."""
        return sum(re.fullmatch(pattern, f"{seen.method} {seen.path}") is not None for seen in self.seen)

    @property
    def streams(self) -> int:
        """How many event streams are open."""
        return len(self._streams)

    # --- for the handler --------------------------------------------------------------------------------------------

    def arrived(self, seen: Seen) -> Fault | None:
        """Note a request; return the fault armed for it."""
        with self._changed:
            self.seen.append(seen)
            self._changed.notify_all()
            for fault in self._faults:
                if fault.times > 0 and re.fullmatch(fault.pattern, f"{seen.method} {seen.path}"):
                    fault.times -= 1
                    return fault
        return None

    def until_closed(self) -> None:
        """Hold a request until the peer is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing, 60)

    def until_ready(self) -> None:
        """Hold a request while the peer pretends to start."""
        with self._changed:
            self._changed.wait_for(lambda: self.ready or self._closing, 60)

    def open_stream(self) -> queue.Queue[bytes | None]:
        stream: queue.Queue[bytes | None] = queue.Queue()
        with self._changed:
            self._streams.add(stream)
            self._changed.notify_all()
        return stream

    def close_stream(self, stream: queue.Queue[bytes | None]) -> None:
        with self._changed:
            self._streams.discard(stream)
            self._changed.notify_all()

    def answer(self, seen: Seen) -> tuple[int, Any, dict[str, str]]:
        """Do what a request asks and return status, body and headers."""
        parts = seen.path.strip("/").split("/")
        if seen.method == "GET":
            return self._read(seen, parts)
        if seen.path == "/session":
            thread = self.session(seen.body.get("title", ""), permission=seen.body.get("permission"))
            return 200, self.sessions[thread], {}
        if parts[0] == "permission" and parts[-1] == "reply":
            self.permissions = [entry for entry in self.permissions if entry["id"] != parts[1]]
            self.emit("permission.replied", requestID=parts[1], reply=seen.body["reply"])
            return 200, True, {}
        if parts[0] != "session" or parts[1] not in self.sessions:
            return 404, {"name": "NotFoundError", "data": {"message": "no such session"}}, {}
        if parts[-1] == "prompt_async":
            text = seen.body["parts"][0]["text"]
            self.put(parts[1], user(seen.body["messageID"], text, created=len(self._messages[parts[1]])))
            if self.answers is not None:
                self.answers(parts[1], seen.body["messageID"], text)
            return 204, None, {}
        return 200, True if parts[-1] == "abort" else self.sessions[parts[1]], {}

    def _read(self, seen: Seen, parts: list[str]) -> tuple[int, Any, dict[str, str]]:
        fixed: dict[str, Any] = {
            "/global/health": {"healthy": True, "version": self.version},
            "/agent": self.agents,
            "/config/providers": {"providers": self.providers},
            "/permission": self.permissions,
            "/session/status": self.statuses,
        }
        if seen.path in fixed:
            return 200, fixed[seen.path], {}
        if seen.path == "/session":
            wanted = seen.query.get("search", "")
            return 200, [entry for entry in self.sessions.values() if wanted in entry["title"]], {}
        if parts[0] != "session" or parts[1] not in self.sessions:
            return 404, {"name": "NotFoundError", "data": {"message": "no such session"}}, {}
        if len(parts) == 2:  # noqa: PLR2004
            return 200, self.sessions[parts[1]], {}
        if parts[2] == "children":
            return 200, [entry for entry in self.sessions.values() if entry.get("parentID") == parts[1]], {}
        with self._changed:
            held = list(self._messages[parts[1]])
        if len(parts) == 4:  # noqa: PLR2004
            found = [message for message in held if message["info"]["id"] == parts[3]]
            missing = {"name": "NotFoundError", "data": {"message": "Message not found"}}
            return (200, found[0], {}) if found else (404, missing, {})
        return self._page(held, seen.query)

    def _page(self, held: list[Json], query: dict[str, str]) -> tuple[int, Any, dict[str, str]]:
        limit = int(query.get("limit", 0))
        if not limit:
            return 200, held, {}
        end = len(held)
        if self.paging and "before" in query:
            name = base64.b64decode(query["before"]).decode()
            end = next(n for n, message in enumerate(held) if message["info"]["id"] == name)
        start = max(0, end - limit)
        page = held[start:end]
        more = self.paging and start > 0
        cursor = base64.b64encode(page[0]["info"]["id"].encode()).decode() if more else ""
        return 200, page, {"x-next-cursor": cursor} if more else {}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    peer: OpenCodePeer

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.connections: set[socket.socket] = set()

    def break_connections(self) -> None:
        for connection in list(self.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients leave when a test ends."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.connections.add(self.connection)

    def finish(self) -> None:
        self.server.connections.discard(self.connection)
        super().finish()

    def log_message(self, *_: Any) -> None:
        """Say nothing: the test asks."""

    def do_GET(self) -> None:
        self._serve(None)

    def do_POST(self) -> None:
        self._serve(self._body())

    def do_PATCH(self) -> None:
        self._serve(self._body())

    def _body(self) -> Any:
        return orjson.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")

    def _serve(self, body: Any) -> None:
        peer = self.server.peer
        parts = urlsplit(self.path)
        seen = Seen(
            self.command, parts.path, {name: values[-1] for name, values in parse_qs(parts.query).items()}, body
        )
        fault = peer.arrived(seen)
        peer.until_ready()
        if fault is not None and fault.kind == "stall":
            peer.until_closed()
        if fault is not None and fault.kind == "lose" and fault.store:
            peer.answer(seen)
        if fault is not None and fault.kind in {"lose", "stall"}:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        if fault is not None:
            self._json(fault.status, {"name": "PeerError", "data": {"message": fault.detail}}, {})
        elif peer.password is not None and self.headers.get("Authorization") != _basic(peer.password):
            self._json(401, {}, {})
        elif seen.path == "/event":
            self._stream(peer)
        else:
            self._json(*peer.answer(seen))

    def _stream(self, peer: OpenCodePeer) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        stream = peer.open_stream()
        try:
            self.wfile.write(b'data: {"type":"server.connected","properties":{}}\n\n')
            while not self._client_gone():
                try:
                    data = stream.get(timeout=0.05)
                except queue.Empty:
                    continue
                if data is None:
                    return
                self.wfile.write(data)
                self.wfile.flush()
        finally:
            peer.close_stream(stream)

    def _client_gone(self) -> bool:
        try:
            peeked: bytes = self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return not peeked

    def _json(self, status: int, value: Any, headers: dict[str, str]) -> None:
        content = b"" if status == 204 else orjson.dumps(value)  # noqa: PLR2004
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        if status != 204:  # noqa: PLR2004
            self.send_header("Content-Length", str(len(content)))
        for name, text in headers.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(content)


def _basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"opencode:{password}".encode()).decode()
