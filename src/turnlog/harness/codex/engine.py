"""The Codex app-server of one conversation: start it, know it again, end it.

An engine is held by its pipe: nobody else can take it over, and two of them must never write one conversation. So each
has a private record in the state folder, and before another one is started the engines of earlier records are ended.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

from turnlog.errors import InvalidError, RefusedError, TurnlogError, UnavailableError, UncertainError
from turnlog.harness import EngineIdentity, HarnessConfig
from turnlog.harness._process import end_group, locate, parse_version, program_version
from turnlog.harness.codex.connection import Connection, RpcError, words
from turnlog.harness.codex.pipe import Pipe
from turnlog.process import Liveness, ProcessIdentity, identify, liveness
from turnlog.wire.jsonrpc import Message

MINIMUM: Final = (0, 155, 0)
"""Oldest version checked that keeps what we rely on: request ids come back in the history (since 0.136; without them a
lost answer could not be looked up), ``turn/start`` into a running turn names that turn, and a second process cannot
write an open conversation (0.142 does neither)."""

READY_DEADLINE: Final = 15.0
LEAVE_GRACE: Final = 3.0
"""Seconds that the engine of a living turnlog has to leave by itself."""

CLIENT: Final = "turnlog"

OFF_SWITCHES: Final = (
    "features.plugins=false",
    "features.apps=false",
    "features.remote_plugin=false",
    "analytics.enabled=false",
    "check_for_update_on_startup=false",
)
"""Given on the command line, so that the user's own ``config.toml`` stays as it is (providers.md §6)."""

_USER_AGENT: Final = re.compile(r"^[^/\s]+/(\S+)")


class Record(msgspec.Struct, frozen=True):
    """What the state folder says about an engine we started."""

    cwd: str
    engine: ProcessIdentity
    owner: ProcessIdentity | None


class Engine:
    """One app-server. ``connection`` may be used after ``start``."""

    def __init__(self, config: HarnessConfig) -> None:
        self._config = config
        self._pipe: Pipe | None = None
        self._record: Path | None = None
        self._connection: Connection | None = None
        self.identity: EngineIdentity | None = None

    @property
    def connection(self) -> Connection:
        if self._connection is None:
            raise UnavailableError("the Codex app-server is not started", hint="start the harness first")
        return self._connection

    async def preflight(self) -> None:
        """Check that the program is there and new enough. Raises UnavailableError, InvalidError."""
        if self._config.endpoint is not None:
            raise InvalidError("Codex is reached through its own pipe only", hint="leave --endpoint out")
        environment = self._environment()
        program = locate("codex", environment, cwd=self._config.cwd)
        _check_version(await program_version(program, environment), program)

    async def start(self, tap: Callable[[Message, int], None]) -> EngineIdentity:
        """Start the program and say hello; the same engine while it runs. Raises UnavailableError, InvalidError."""
        if self.identity is not None and self.alive():
            return self.identity
        if self._config.endpoint is not None:
            raise InvalidError("Codex is reached through its own pipe only", hint="leave --endpoint out")
        await self.stop()
        folder = self._config.state_dir
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        await self._end_earlier()
        environment = self._environment()
        program = locate("codex", environment, cwd=self._config.cwd)
        record = folder / f"codex-{secrets.token_hex(4)}.json"
        argv = [str(program), "app-server"]
        for switch in OFF_SWITCHES:
            argv += ["-c", switch]
        self._pipe = await Pipe.start(argv, cwd=self._config.cwd, env=environment, log=record.with_suffix(".log"))
        process = self._pipe.program.identity
        self._record = record
        write_private(record, msgspec.json.encode(Record(str(self._config.cwd), process, identify())))
        self._connection = Connection(self._pipe, tap)
        try:
            version = await self._hello(program, environment)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.stop()
            raise
        self.identity = EngineIdentity(None, process.pid, process.started_at, version)
        return self.identity

    def alive(self) -> bool:
        """Tell whether the program runs and its output is open."""
        return self._pipe is not None and self.connection.ended is None and self._pipe.program.exit_code() is None

    async def reap(self) -> None:
        """Wait for the exit of a program whose output ended; bounded."""
        if self._pipe is not None:
            await self._pipe.reap()

    def exit_code(self) -> int | None:
        """Return how the program ended (negative: by a signal), None while it runs."""
        return self._pipe.program.exit_code() if self._pipe is not None else None

    def last_words(self) -> str:
        """Return the last line of its complaints, safe to store."""
        tail = self._pipe.program.log_tail() if self._pipe is not None else ""
        return words(tail.splitlines()[-1]) if tail else ""

    async def stop(self) -> None:
        """End the program: its input is closed, then it is terminated, then killed."""
        pipe, connection = self._pipe, self._connection
        self._pipe = self._connection = self.identity = None
        if connection is not None:
            await connection.close()
        if pipe is not None:
            await pipe.end()
        if self._record is not None:
            _forget(self._record)
            self._record = None

    def _environment(self) -> dict[str, str]:
        return {**os.environ, **self._config.env}

    async def _hello(self, program: Path, environment: Mapping[str, str]) -> str:
        params: dict[str, Any] = {
            "clientInfo": {"name": CLIENT, "title": CLIENT, "version": version_of("turnlog")},
            # The paged history is part of what Codex calls experimental.
            "capabilities": {"experimentalApi": True},
        }
        try:
            answer = await self.connection.request("initialize", params, deadline=READY_DEADLINE)
            self.connection.notify("initialized")
        except (UncertainError, RefusedError) as error:
            await self._explain(error, program, environment)
        agent = answer.get("userAgent") if isinstance(answer, dict) else None
        found = _USER_AGENT.match(agent) if isinstance(agent, str) else None
        if found is None or parse_version(found[1]) is None:
            raise UnavailableError(f"{program} app-server does not answer like Codex", hint="check TURNLOG_CODEX_BIN")
        _check_version(found[1], program)
        return found[1]

    async def _explain(self, error: TurnlogError, program: Path, environment: Mapping[str, str]) -> None:
        """Raise what fits a program that did not say hello."""
        if isinstance(error, RpcError):
            raise UnavailableError(f"Codex refused to begin: {error.detail}") from error
        _check_version(await program_version(program, environment), program)
        code = self.exit_code()
        log = self._pipe.program.log if self._pipe is not None else ""
        if code is None and self.connection.ended is None:
            raise UnavailableError(
                f"Codex was not ready within {READY_DEADLINE:g} s", hint=f"its own words are in {log}"
            ) from error
        raise UnavailableError(
            f"Codex ended with code {code} before it was ready: {self.last_words() or 'it said nothing'}",
            hint=f"its own words are in {log}",
        ) from error

    async def _end_earlier(self) -> None:
        """End engines of this conversation that earlier records name. Raises UnavailableError when one may live."""
        for path in sorted(self._config.state_dir.glob("codex-*.json")):
            record = _read_record(path)
            if record is None:
                continue
            if record.owner is not None and _life(record.owner) is Liveness.ALIVE:
                until = time.monotonic() + LEAVE_GRACE  # its turnlog may be ending it just now
                while _life(record.engine) is Liveness.ALIVE and time.monotonic() < until:  # noqa: ASYNC110 - no signal
                    await anyio.sleep(0.05)
            await end_group(record.engine)
            if _life(record.engine) is not Liveness.DEAD:
                raise UnavailableError(
                    f"an earlier Codex of this conversation (process {record.engine.pid}) may still run",
                    hint=f"end it, then remove {path}",
                )
            _forget(path)


def _life(identity: ProcessIdentity) -> Liveness:
    return liveness(identity.boot_id, identity.pid, identity.started_at)


def _check_version(version: str, program: Path) -> None:
    found = parse_version(version)
    if found is not None and found < MINIMUM:
        wanted = ".".join(map(str, MINIMUM))
        raise UnavailableError(
            f"Codex {version} at {program} is too old",
            hint=f"install Codex {wanted} or later (npm install -g @openai/codex)",
        )


def write_private(path: Path, content: bytes) -> None:
    """Write a 0600 file at once: a reader sees the old or the new content."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    temporary.replace(path)


def _read_record(path: Path) -> Record | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Record)
    except (OSError, msgspec.DecodeError):
        return None


def _forget(record: Path) -> None:
    """Remove the record of an engine that is gone; its log stays for the person who looks."""
    with contextlib.suppress(OSError):
        record.unlink()
