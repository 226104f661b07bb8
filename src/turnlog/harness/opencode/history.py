"""Reading one conversation's message list without reading it again and again (semantics 6.2.3).

The list is the truth. After every (re)connect it is read whole, in pages; between, only its newest page and the
messages that events named, so a long conversation costs the same per wake as a short one. A fingerprint per message
tells what changed.

Two quirks of 1.18.33 live here: a page that is *not* the last one of the list (it has a cursor) is not checked
against OpenCode's schema, while the last one, and the whole list, answer 400 once a prompt asked for a JSON schema.
So pages shrink until only the offending message is left out.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Collection
from typing import Any, Final

import msgspec

from turnlog.errors import UnavailableError
from turnlog.harness._http import HttpClient, HttpStatusError
from turnlog.harness.opencode.decode import Message, read_message

PAGE: Final = 100
NEWEST: Final = 4
"""Messages of the newest page at a wake: the open one, its predecessor, and a prompt or two."""

_BAD_REQUEST: Final = 400
_NOT_FOUND: Final = 404

# OpenCode gives the members of a message in another order once it reads it back from its database.
_encoder: Final = msgspec.json.Encoder(order="deterministic")


class ThreadHistory:
    """The messages of one conversation as last read. Errors are those of the HTTP client's reads."""

    def __init__(self, http: HttpClient, thread: str, params: dict[str, str]) -> None:
        self._http = http
        self._path = f"/session/{thread}"
        self._params = params
        self._fingerprints: dict[str, bytes] = {}
        self._changed: set[str] = set()
        self._reading = asyncio.Lock()
        self.thread = thread
        self.messages: dict[str, Message] = {}
        self.title: str | None = None
        self.version: str | None = None
        self.unreadable = 0
        """Messages at the start of the list that the server refuses to give."""

    def use(self, http: HttpClient) -> None:
        """Go on with a server that was started again."""
        self._http = http

    async def read_info(self) -> dict[str, Any]:
        """Read title and OpenCode version of the session; HttpStatusError 404 when there is none."""
        answer = await self._http.read(self._path, self._params)
        info: dict[str, Any] = answer.value if isinstance(answer.value, dict) else {}
        title, version = info.get("title"), info.get("version")
        self.title = title if isinstance(title, str) else None
        self.version = version if isinstance(version, str) else None
        return info

    def changed(self) -> list[Message]:
        """Return the messages that are new or changed and not taken yet, in order."""
        found = (self.messages[name] for name in self._changed if name in self.messages)
        return sorted(found, key=lambda message: message.order)

    def take_changed(self) -> set[str]:
        """Return the ids of messages that are new or changed since the last call.

        They are kept until taken, so a read that fails half way loses nothing.
        """
        changed = self._changed & self.messages.keys()
        self._changed = set()
        return changed

    async def read_all(self) -> None:
        """Read the whole list."""
        async with self._reading:
            await self._read_pages()

    async def read_news(self, named: Collection[str] = ()) -> None:
        """Read the newest page and the messages that events named."""
        async with self._reading:
            if not self.messages:
                await self._read_pages()
                return
            seen: set[str] = set()
            before: str | None = None
            limit = max(NEWEST, len(named) + 2)
            known = set(self.messages)
            while True:
                page, before, limit = await self._page(limit, before)
                self._take(page, seen)
                if not known.isdisjoint(seen):
                    break
                if before is None:
                    await self._read_pages()
                    return
                limit = PAGE  # so much happened unseen that the page does not reach what we know
            for name in named:
                if name not in seen:
                    await self._read_one(name)

    async def find(self, message: str) -> bool:
        """Tell whether the list holds a message of this id, or an answer to it (promise 4)."""
        try:
            await self._http.read(f"{self._path}/message/{message}", self._params)
        except HttpStatusError as error:
            if error.status not in {_BAD_REQUEST, _NOT_FOUND}:
                raise
        else:
            return True
        await self.read_all()
        return message in self.messages or any(other.parent == message for other in self.messages.values())

    async def open_messages(self) -> set[str]:
        """Return the assistant messages of the newest page that are still open."""
        page, _, _ = await self._page(NEWEST, None)
        messages = (read_message(self.thread, value) for value in page)
        return {message.id for message in messages if message and message.parent and message.completed is None}

    async def _read_pages(self) -> None:
        seen: set[str] = set()
        self.unreadable = 0
        before: str | None = None
        limit = PAGE
        page, before, limit = await self._page(limit, before)
        self._take(page, seen)
        if before is None and len(page) >= limit:
            self._take(await self._unpaged(), seen)
        while before is not None:
            page, before, limit = await self._page(min(PAGE, limit * 2), before)
            self._take(page, seen)
        for gone in self.messages.keys() - seen:
            del self.messages[gone], self._fingerprints[gone]

    async def _read_one(self, message: str) -> None:
        try:
            answer = await self._http.read(f"{self._path}/message/{message}", self._params)
        except HttpStatusError as error:
            if error.status in {_BAD_REQUEST, _NOT_FOUND}:
                return  # removed meanwhile, or a prompt that the server cannot give any more
            raise
        self._take([answer.value], set())

    async def _unpaged(self) -> list[Any]:
        """Read the list without pages: versions before 1.2 cut it at ``limit`` and give no cursor."""
        try:
            answer = await self._http.read(f"{self._path}/message", self._params)
        except HttpStatusError as error:
            if error.status != _BAD_REQUEST:
                raise
            return []  # only newer versions refuse a whole list, and their pages were complete
        return answer.value if isinstance(answer.value, list) else []

    async def _page(self, limit: int, before: str | None) -> tuple[list[Any], str | None, int]:
        """Return a page, the cursor of the one before it, and the page size that worked."""
        while True:
            params = {**self._params, "limit": str(limit)}
            if before is not None:
                params["before"] = before
            try:
                answer = await self._http.read(f"{self._path}/message", params)
            except HttpStatusError as error:
                if error.status != _BAD_REQUEST:
                    raise
                if limit == 1:
                    self.unreadable += 1
                    return [], None, limit
                limit = max(1, limit // 4)
                continue
            if not isinstance(answer.value, list):
                raise UnavailableError(f"OpenCode's message list of {self.thread} is not a list")
            return answer.value, answer.headers.get("x-next-cursor"), limit

    def _take(self, page: list[Any], seen: set[str]) -> None:
        for value in page:
            message = read_message(self.thread, value)
            if message is None:
                continue
            seen.add(message.id)
            fingerprint = hashlib.blake2b(_encoder.encode(value), digest_size=16).digest()
            if self._fingerprints.get(message.id) != fingerprint:
                self._fingerprints[message.id] = fingerprint
                self.messages[message.id] = message
                self._changed.add(message.id)
