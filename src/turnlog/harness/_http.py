"""A thin HTTP client with deadlines that tells "certainly not sent" from "may have been sent" (H6).

Errors of a *write*: RefusedError when nothing left this machine or the server answered with an error status (then as
HttpStatusError); UncertainError when the request may have arrived and no answer came. A *read* has no effect, so its
failures are UnavailableError (error statuses: HttpStatusError).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import httpx
import orjson

from turnlog.errors import InvalidError, RefusedError, UnavailableError, UncertainError
from turnlog.receipts import decode_foreign, decode_repaired
from turnlog.redact import sanitise, strip_terminal

DEADLINE: Final = 10.0
"""Seconds for one request (appendix F)."""

CONNECT_DEADLINE: Final = 3.0
"""Seconds to open a connection."""

_LOOPBACK: Final = {"127.0.0.1", "localhost", "::1"}


class HttpStatusError(RefusedError):
    """The server answered with an error status. ``status`` is the code, ``detail`` its own words, sanitised."""

    def __init__(self, what: str, status: int, detail: str) -> None:
        super().__init__(f"{what}: HTTP {status}{': ' + detail if detail else ''}")
        self.status = status
        self.detail = detail


class Answer:
    """A successful answer: headers and the decoded JSON body (None when empty)."""

    def __init__(self, headers: httpx.Headers, value: Any) -> None:
        self.headers = headers
        self.value = value


class HttpClient:
    """Requests to one server. ``requests`` and ``bytes_read`` count what was done, for budgets and tests."""

    def __init__(self, base_url: str, *, name: str, auth: tuple[str, str] | None = None) -> None:
        # Proxy variables of the environment are meant for the network, not for a server on this machine.
        local = urlsplit(base_url).hostname in _LOOPBACK
        basic = httpx.BasicAuth(*auth) if auth else None
        timeout = httpx.Timeout(DEADLINE, connect=CONNECT_DEADLINE)
        self.name = name
        self.deadline = DEADLINE
        """Seconds for a request that names no deadline of its own."""
        self.requests = 0
        self.bytes_read = 0
        # Without TLS no certificates are needed, and loading them costs 20 ms a client.
        tls = urlsplit(base_url).scheme == "https"
        self._reader = httpx.AsyncClient(
            base_url=base_url, auth=basic, timeout=timeout, trust_env=not local, verify=tls
        )
        # A kept connection can be closed by the server just as a write leaves: that write would be uncertain for
        # nothing. So each write gets its own connection.
        self._writer = httpx.AsyncClient(
            base_url=base_url,
            auth=basic,
            timeout=timeout,
            trust_env=not local,
            verify=tls,
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._reader.aclose()
        await self._writer.aclose()

    async def read(
        self, path: str, params: Mapping[str, str] | None = None, *, deadline: float | None = None
    ) -> Answer:
        """GET a JSON value. Raises HttpStatusError or UnavailableError."""
        deadline = self.deadline if deadline is None else deadline
        what = self._begin("GET", path)
        try:
            answer = await self._reader.get(path, params=params, timeout=deadline)
        except httpx.TimeoutException as error:
            raise UnavailableError(f"{what}: no answer within {deadline:g} s") from error
        except httpx.HTTPError as error:
            raise UnavailableError(f"{what}: {_words(error)}") from error
        return self._answer(what, answer)

    async def write(
        self,
        method: str,
        path: str,
        body: Any,
        params: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a JSON body. Raises RefusedError (HttpStatusError) or UncertainError; never tries twice (H6)."""
        what = self._begin(method, path)
        try:
            answer = await self._writer.request(
                method,
                path,
                params=params,
                content=orjson.dumps(body),
                headers={"content-type": "application/json"},
                timeout=httpx.Timeout(self.deadline, connect=min(self.deadline, CONNECT_DEADLINE)),
            )
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol) as error:
            raise RefusedError(f"{what}: not connected: {_words(error)}") from error
        except httpx.HTTPError as error:
            raise UncertainError(f"{what}: the request may have arrived, no answer came: {_words(error)}") from error
        return self._answer(what, answer)

    @asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, str] | None = None, *, silence: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open an event stream and yield its bytes. Raises HttpStatusError or UnavailableError on opening.

        While reading, httpx errors pass through, also after ``silence`` seconds without a byte: the caller decides
        what a broken stream means.
        """
        what = self._begin("GET", path)
        request = self._reader.build_request(
            "GET",
            path,
            params=params,
            headers={"accept": "text/event-stream"},
            timeout=httpx.Timeout(silence, connect=CONNECT_DEADLINE, pool=CONNECT_DEADLINE),
        )
        try:
            with anyio.fail_after(self.deadline):  # a connection can be accepted and never answered
                answer = await self._reader.send(request, stream=True)
        except TimeoutError as error:
            raise UnavailableError(f"{what}: no answer within {self.deadline:g} s") from error
        except httpx.HTTPError as error:
            raise UnavailableError(f"{what}: {_words(error)}") from error
        try:
            if answer.is_error:
                await answer.aread()
                self._answer(what, answer)
            yield answer.aiter_raw()
        finally:
            await answer.aclose()

    def _begin(self, method: str, path: str) -> str:
        """Count a request and return how errors name it."""
        if self._reader.is_closed:
            raise RefusedError(f"{self.name}: the connection was closed", hint="start the harness again")
        self.requests += 1
        return f"{self.name}: {method} {path}"

    def _answer(self, what: str, answer: httpx.Response) -> Answer:
        self.bytes_read += len(answer.content)
        if answer.is_error:
            raise HttpStatusError(what, answer.status_code, _error_words(answer.content))
        if not answer.content:
            return Answer(answer.headers, None)
        try:
            # One bad value in a list of messages must not lose the others: it becomes a string or null, which whoever
            # needs that value then finds to be no number (promise 7).
            value, _ = decode_repaired(answer.content)
        except InvalidError as error:
            raise UnavailableError(f"{what}: the answer is {error}") from error
        return Answer(answer.headers, value)


def _words(error: Exception) -> str:
    return strip_terminal(sanitise(str(error) or type(error).__name__))


def _error_words(content: bytes) -> str:
    """Return the server's own message from an error body, one line, sanitised."""
    try:
        value, _ = decode_foreign(content)
    except InvalidError:
        value = content[:2000].decode(errors="replace")
    for path in (("data", "message"), ("error", "message"), ("message",)):
        found = value
        for name in path:
            found = found.get(name) if isinstance(found, dict) else None
        if isinstance(found, str):
            value = found
            break
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return strip_terminal(sanitise(" ".join(text.split())))[:500]
