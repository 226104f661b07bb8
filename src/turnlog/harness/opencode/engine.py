"""The OpenCode server: start and own one, adopt one that a dead turnlog left, or reach one that is not ours.

Each engine we start has a record in the state folder (records.py). It lets another turnlog process reach the engine
after ours is gone. An engine is ours while its record names us as the owner; ``detach`` gives it up, ``stop`` ends it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import anyio
import httpx
import msgspec

from turnlog.errors import UnavailableError
from turnlog.harness import EngineIdentity, HarnessConfig
from turnlog.harness._http import HttpClient, HttpStatusError
from turnlog.harness._process import Program, end_group, locate, parse_version, program_version
from turnlog.harness.opencode.permissions import environment_rules
from turnlog.harness.opencode.records import (
    USERNAME,
    Record,
    credentials,
    forget,
    is_dead,
    living_records,
    read_password,
    read_record,
    write_private,
    write_record,
)
from turnlog.process import Liveness, ProcessIdentity, identify, liveness
from turnlog.redact import sanitise, strip_terminal

MINIMUM: Final = (1, 1, 0)
READY_DEADLINE: Final = 15.0
PROBE: Final = 0.3
"""Seconds for the first probe. A connection made while the server starts can be accepted and never answered, so a
probe must be short and be made again (providers.md §2, quirks)."""

LONGEST_PROBE: Final = 3.0
"""Seconds for one probe at most: one without an answer is followed by a longer one, as the machine may be slow."""

ANSWER_DEADLINE: Final = 10.0
"""Seconds that a server which runs has to answer, before another one takes its place."""

PROBE_PAUSE: Final = 0.05
PORT_TRIES: Final = 3

OFF_SWITCHES: Final = {
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    # At first use OpenCode installs its own plugin package (96 MB); in a network that swallows packets the first turn
    # waits for it. Only this scope is sent to a dead registry: the agent's own npm must go on working.
    "npm_config_@opencode-ai:registry": "http://127.0.0.1:9/",
}


class Engine:
    """One OpenCode server and our way to it.

    ``http`` may be used after ``start``. ``owned`` tells whether ``stop`` ends the server.
    """

    def __init__(self, config: HarnessConfig) -> None:
        self._config = config
        self._program: Program | None = None
        self._record: Path | None = None
        self._http: HttpClient | None = None
        self.identity: EngineIdentity | None = None
        self.process: ProcessIdentity | None = None

    @property
    def http(self) -> HttpClient:
        if self._http is None:
            raise UnavailableError("the OpenCode server is not started", hint="start the harness first")
        return self._http

    @property
    def owned(self) -> bool:
        return self._record is not None

    async def start(self) -> EngineIdentity:
        """Start, adopt or reach a server and wait until it answers. Idempotent while it runs.

        Raises UnavailableError: program missing, too old, never ready, or the endpoint does not answer.
        """
        if self.identity is not None and self._http is not None and await self.alive():
            return self.identity
        await self.stop()  # one of ours that died, or does not answer any more, makes room
        self._private_folder()
        if self._config.endpoint is not None:
            self.identity = await self._reach(self._config.endpoint)
        else:
            self.identity = await self._adopt() or await self._launch()
        return self.identity

    async def preflight(self) -> None:
        """Check that the program is there and new enough, without starting a server. Raises UnavailableError."""
        if self._config.endpoint is not None:
            credentials(self._config.endpoint, self._config)
            return
        environment = {**os.environ, **self._config.env}
        program = locate("opencode", environment, cwd=self._config.cwd)
        _check_version(await program_version(program, environment), program)

    async def alive(self) -> bool:
        """Tell whether the server answers; one that runs has ``ANSWER_DEADLINE`` seconds to do so."""
        if self._http is None:
            return False
        try:
            return await _told_version(self._http, self.gone) is not None
        except HttpStatusError:
            return True  # it answers, whatever it says

    def gone(self) -> bool:
        """Tell whether the server's process is known to have ended (False when we know no process)."""
        if self._program is not None:
            return self._program.exit_code() is not None
        known = self.process
        return known is not None and liveness(known.boot_id, known.pid, known.started_at) is Liveness.DEAD

    async def stop(self) -> None:
        """End the server if it is ours, remove its secret, close connections."""
        await self._close_http()
        if self._program is not None:
            await self._program.end()
            self._program = None
        elif self.owned and self.process is not None:
            await end_group(self.process)
        if self._record is not None:
            forget(self._record)
        self._record = self.process = self.identity = None

    async def detach(self) -> None:
        """Leave the server running without an owner and close connections."""
        await self._close_http()
        if self._record is not None and (record := read_record(self._record)) is not None:
            write_record(self._record, msgspec.structs.replace(record, owner=None))
        if self._program is not None:
            self._program.leave()
        self._program = self._record = self.process = self.identity = None

    async def _close_http(self) -> None:
        if self._http is not None:
            await self._http.close()
            self._http = None

    def _private_folder(self) -> None:
        folder = self._config.state_dir
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)

    # --- an endpoint that is not ours -------------------------------------------------------------------------------

    async def _reach(self, endpoint: str) -> EngineIdentity:
        base, auth = credentials(endpoint, self._config)
        self._http = HttpClient(base, name="OpenCode", auth=auth)
        until, probe = time.monotonic() + READY_DEADLINE, PROBE
        while True:
            try:
                version = await _health(self._http, probe)
            except HttpStatusError as error:
                await self._close_http()
                if error.status == 401:  # noqa: PLR2004 - the status has a name in every reader's head
                    raise UnavailableError(
                        f"{base} wants another password", hint="set OPENCODE_SERVER_PASSWORD to that server's password"
                    ) from error
                raise UnavailableError(f"{base} is not an OpenCode server: {error}", hint="check --endpoint") from error
            except UnavailableError as error:
                if time.monotonic() > until or _refused(base):
                    await self._close_http()
                    raise UnavailableError(
                        f"no OpenCode server answers at {base}: {error}", hint="start it, or leave --endpoint out"
                    ) from error
                probe = min(2 * probe, LONGEST_PROBE)
                await anyio.sleep(PROBE_PAUSE)
            else:
                break
        try:
            _check_version(version, base)
        except UnavailableError:
            await self._close_http()
            raise
        for _, record in living_records(self._config.state_dir):
            if record.endpoint == base:
                self.process = record.engine
        known = self.process
        return EngineIdentity(base, known.pid if known else None, known.started_at if known else None, version)

    # --- an engine of ours ------------------------------------------------------------------------------------------

    async def _adopt(self) -> EngineIdentity | None:
        """Take over a running engine of this folder and policy (or any) whose owner is dead or gave it up."""
        for path, record in living_records(self._config.state_dir):
            policy = self._config.adopt_any or record.permissions == self._config.permissions
            fits = record.cwd == str(self._config.cwd) and policy
            password = read_password(path)
            if not fits or password is None or not (record.owner is None or is_dead(record.owner)):
                continue
            http = HttpClient(record.endpoint, name="OpenCode", auth=(USERNAME, password))
            version = None
            with contextlib.suppress(HttpStatusError):
                # It runs: were it taken for dead because it is slow, another one would work on the same conversation.
                version = await _told_version(http, partial(is_dead, record.engine))
            if version is None:
                await http.close()
                continue
            write_record(path, msgspec.structs.replace(record, owner=identify()))
            self._http, self._record, self.process = http, path, record.engine
            known = record.engine
            return EngineIdentity(record.endpoint, known.pid, known.started_at, version, record.permissions)
        return None

    async def _launch(self) -> EngineIdentity:
        environment = {**os.environ, **self._config.env}
        program = locate("opencode", environment, cwd=self._config.cwd)
        failure: UnavailableError | None = None
        for _ in range(PORT_TRIES):
            try:
                return await self._launch_on(program, environment, _free_port())
            except _PortTakenError as error:
                failure = error
        raise UnavailableError(f"OpenCode found no free port in {PORT_TRIES} tries: {failure}") from failure

    async def _launch_on(self, program: Path, environment: Mapping[str, str], port: int) -> EngineIdentity:
        record = self._config.state_dir / f"opencode-{secrets.token_hex(4)}.json"
        password = secrets.token_urlsafe(24)
        write_private(record.with_suffix(".password"), password.encode())
        endpoint = f"http://127.0.0.1:{port}"
        self._program = Program.start(
            [str(program), "serve", "--hostname", "127.0.0.1", "--port", str(port)],
            cwd=self._config.cwd,
            env={
                **OFF_SWITCHES,
                **environment,
                **environment_rules(self._config.permissions),
                "OPENCODE_SERVER_PASSWORD": password,
                "OPENCODE_SERVER_USERNAME": USERNAME,
            },
            log=record.with_suffix(".log"),
        )
        self.process, self._record = self._program.identity, record
        entry = Record(endpoint, str(self._config.cwd), self._config.permissions, self.process, identify())
        write_record(record, entry)
        self._http = HttpClient(endpoint, name="OpenCode", auth=(USERNAME, password))
        try:
            version = await self._wait_ready(self._http, self._program, program, environment)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.stop()
            raise
        known = self.process
        return EngineIdentity(endpoint, known.pid, known.started_at, version, self._config.permissions)

    async def _wait_ready(
        self, http: HttpClient, running: Program, program: Path, environment: Mapping[str, str]
    ) -> str:
        until, probe = time.monotonic() + READY_DEADLINE, PROBE
        failure = "no answer"
        while time.monotonic() < until:
            if running.exit_code() is not None:
                await self._explain_exit(running, program, environment)
            try:
                version = await _health(http, probe)
            except HttpStatusError as error:
                # Someone else's server on our port: ours has another password, or no such route in an old version.
                failure = str(error)
                if running.exit_code() is None and error.status == 404:  # noqa: PLR2004
                    _check_version(await program_version(program, environment), program)
            except UnavailableError as error:
                failure = str(error)
                if not isinstance(error.__cause__, httpx.ConnectError):  # it listens
                    probe = min(2 * probe, LONGEST_PROBE)
            else:
                _check_version(version, program)
                return version
            await anyio.sleep(PROBE_PAUSE)
        raise UnavailableError(
            f"OpenCode was not ready within {READY_DEADLINE:g} s: {failure}", hint=f"its own words are in {running.log}"
        )

    async def _explain_exit(self, running: Program, program: Path, environment: Mapping[str, str]) -> None:
        """Raise what fits a server that ended before it was ready."""
        words = strip_terminal(sanitise(running.log_tail()))
        if "EADDRINUSE" in words or ("port" in words.lower() and "in use" in words.lower()):
            raise _PortTakenError(words.splitlines()[-1])
        _check_version(await program_version(program, environment), program)
        last = words.splitlines()[-1] if words else "it said nothing"
        raise UnavailableError(
            f"OpenCode ended with code {running.exit_code()} before it was ready: {last}",
            hint=f"its own words are in {running.log}",
        )


class _PortTakenError(UnavailableError):
    """Another program took the port between our look and the server's start."""


async def _told_version(http: HttpClient, gone: Callable[[], bool]) -> str | None:
    """Return the version that a running server tells, however slow it is.

    None when it is gone, nobody listens, or it gives no healthy answer within ``ANSWER_DEADLINE`` seconds. Raises
    HttpStatusError.
    """
    until, probe = time.monotonic() + ANSWER_DEADLINE, PROBE
    while not gone():
        try:
            return await _health(http, probe)
        except UnavailableError as error:
            if isinstance(error.__cause__, httpx.ConnectError) or time.monotonic() > until:
                return None
        probe = min(2 * probe, LONGEST_PROBE)
        await anyio.sleep(PROBE_PAUSE)
    return None


async def _health(http: HttpClient, deadline: float) -> str:
    """Return the version a healthy server tells. Raises HttpStatusError or UnavailableError."""
    answer = await http.read("/global/health", deadline=deadline)
    body = answer.value
    if not isinstance(body, dict) or body.get("healthy") is not True or not isinstance(body.get("version"), str):
        raise UnavailableError("it does not answer like an OpenCode server")
    return str(body["version"])


def _check_version(version: str, where: Path | str) -> None:
    found = parse_version(version)
    if found is not None and found < MINIMUM:
        wanted = ".".join(map(str, MINIMUM))
        raise UnavailableError(
            f"OpenCode {version} at {where} is too old", hint=f"install OpenCode {wanted} or later (opencode upgrade)"
        )


def _refused(base: str) -> bool:
    """Tell whether nobody listens at the endpoint: then waiting is useless."""
    parts = urlsplit(base)
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 80), timeout=PROBE):
            return False
    except ConnectionRefusedError:
        return True
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
