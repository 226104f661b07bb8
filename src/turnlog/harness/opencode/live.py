"""The OpenCode harness: one conversation on one server (semantics 6.1, 6.2; D4, D12, D15, D19, D20)."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator
from typing import Any, Final

from turnlog.clock import now_ms
from turnlog.errors import InvalidError, MissingError, RefusedError, UnavailableError, UncertainError
from turnlog.harness import Batch, Delivery, EngineIdentity, HarnessConfig, SteerOutcome
from turnlog.harness._http import HttpClient, HttpStatusError
from turnlog.harness.opencode.engine import Engine
from turnlog.harness.opencode.permissions import check_policy, session_rules
from turnlog.harness.opencode.watch import Watch

_NOT_FOUND: Final = 404
_ANSWERS: Final = ("once", "always", "reject")
REJECTED: Final = "The user does not allow this. Go on without it, or say why it is needed."


class OpenCodeHarness:
    """Implements ``turnlog.harness.Harness`` for OpenCode."""

    provider = "opencode"
    adoptable = True
    structured = False  # its json_schema format breaks reading the history afterwards (seen on 1.18.33)

    def __init__(self, config: HarnessConfig) -> None:
        check_policy(config.permissions)
        self._model = _parse_model(config.model)
        self._config = config
        self._engine = Engine(config)
        self._thread = config.thread
        self._opened = False
        self._opening = asyncio.Lock()
        self._params = {"directory": str(config.cwd.resolve())}
        self._watch: Watch | None = None
        self._served: EngineIdentity | None = None
        """The server that was started or reached last, also after ``stop``: one that is not ours lives on."""
        self._last_instant = 0
        self._lost: UncertainError | None = None
        """A creation that may have happened: the session is looked for from then on, never made again."""

    @property
    def http(self) -> HttpClient:
        """The client in use; it counts requests and bytes."""
        return self._engine.http

    async def preflight(self) -> None:
        await self._engine.preflight()

    async def start(self) -> EngineIdentity:
        identity = await self._engine.start()
        if self._watch is not None and self._watch.http is not self._engine.http:
            self._watch.use(self._engine.http, self._engine.gone, another=identity != self._served)
        self._served = identity
        return identity

    async def open_thread(self) -> str:
        """Return the provider thread; make it at most once (6.2.1).

        Raises MissingError when the configured thread does not exist, InvalidError for an unknown model, UncertainError
        when a creation may have happened and cannot be found again.
        """
        async with self._opening:
            if self._opened and self._thread is not None:
                return self._thread
            await self._check_model()
            thread = await (self._create() if self._thread is None else self._resume(self._thread))
            self._thread, self._opened = thread, True
            self._watch = Watch(self._engine.http, self._engine.gone, thread, self._params, self._config)
            return thread

    async def _check_model(self) -> None:
        """Refuse a model that OpenCode does not know: it would take the prompt and answer nothing."""
        if self._model is None:
            return
        try:
            answer = await self.http.read("/config/providers", self._params)
        except UnavailableError:
            return  # no list, no judgement
        listed = answer.value.get("providers") if isinstance(answer.value, dict) else None
        known = {
            provider["id"]: provider["models"]
            for provider in (listed if isinstance(listed, list) else ())
            if isinstance(provider, dict) and isinstance(provider.get("models"), dict) and "id" in provider
        }
        provider, model = self._model["providerID"], self._model["modelID"]
        if known and model not in known.get(provider, ()):
            names = [f"{provider}/{name}" for name in known.get(provider, ())] or [f"{name}/…" for name in known]
            raise InvalidError(
                f"OpenCode knows no model {self._config.model}", hint=f"it knows {', '.join(sorted(names)[:20])}"
            )

    async def _resume(self, thread: str) -> str:
        try:
            answer = await self.http.read(f"/session/{thread}")
        except HttpStatusError as error:
            if error.status == _NOT_FOUND:
                raise MissingError(
                    f"OpenCode has no session {thread}", hint="it was deleted, or belongs to another OpenCode home"
                ) from error
            raise
        info = answer.value if isinstance(answer.value, dict) else {}
        if isinstance(info.get("directory"), str):
            self._params["directory"] = info["directory"]
        # The session keeps the rules it was made with; ours come behind them and so win.
        await self.http.write("PATCH", f"/session/{thread}", {"permission": await self._rules()}, self._params)
        return thread

    async def _create(self) -> str:
        """Create the session, or find the one that a lost answer left (its title is unique, by the driver)."""
        found = await self._titled()
        if not found and self._lost is not None:
            raise self._lost
        if not found:
            body = {"title": self._config.title, "permission": await self._rules()}
            try:
                answer = await self.http.write("POST", "/session", body, self._params)
            except UncertainError as lost:
                found = await self._titled()
                if len(found) != 1:
                    self._lost = UncertainError(f"{lost.message}; {len(found)} sessions have its title")
                    raise self._lost from lost
            else:
                if isinstance(answer.value, dict) and isinstance(answer.value.get("id"), str):
                    return str(answer.value["id"])
                raise UncertainError("OpenCode created a session but told no id")
        if len(found) > 1:
            raise UncertainError(f"{len(found)} OpenCode sessions have the title {self._config.title!r}")
        await self.http.write("PATCH", f"/session/{found[0]}", {"permission": await self._rules()}, self._params)
        return found[0]

    async def _titled(self) -> list[str]:
        answer = await self.http.read("/session", {**self._params, "search": self._config.title})
        sessions = answer.value if isinstance(answer.value, list) else []
        return [
            str(session["id"])
            for session in sessions
            if isinstance(session, dict) and session.get("title") == self._config.title
        ]

    async def _rules(self) -> list[dict[str, str]]:
        agents = None
        if self._config.permissions == "ask":
            agents = (await self.http.read("/agent", self._params)).value
        return session_rules(self._config.permissions, agents)

    def new_request_id(self) -> str:
        """Return a user message id: ``msg_`` and 32 hex digits that sort like OpenCode's own ids.

        OpenCode's ids begin with 48 bits of ``ms × 4096 + counter``; versions that compare ids to find the newest
        message would take a random id for an old or a future one.
        """
        self._last_instant = max(self._last_instant + 1, now_ms() * 0x1000)
        return f"msg_{self._last_instant & 0xFFFFFFFFFFFF:012x}{secrets.token_hex(10)}"

    def turn_of(self, request_id: str) -> str | None:
        return request_id

    async def send(
        self, request_id: str, text: str, *, system: str | None = None, schema: dict[str, Any] | bool | None = None
    ) -> str | None:
        watch = self._require_watch()
        watch.expect(request_id)
        try:
            await self._prompt(request_id, text, system)
        except RefusedError:
            watch.forget(request_id)
            raise
        watch.sent(request_id)
        return request_id

    async def steer(self, request_id: str, text: str) -> SteerOutcome:
        """Send text into the open turn. The rest of that turn answers to this request (D19)."""
        if not text.strip():
            raise InvalidError("nothing to say", hint="give a text")
        if await self._idle():
            return SteerOutcome.NOT_STEERABLE
        await self.send(request_id, text)
        return SteerOutcome.SENT

    async def _prompt(self, request_id: str, text: str, system: str | None) -> None:
        body: dict[str, Any] = {"messageID": request_id, "parts": [{"type": "text", "text": text}]}
        if system is not None:
            body["system"] = system
        if self._model is not None:
            body["model"] = self._model
        await self.http.write("POST", f"/session/{self._require_thread()}/prompt_async", body, self._params)

    async def interrupt(self) -> None:
        """Abort the open turn; no-op when idle. The outcome is recorded when the message says ``time.completed``."""
        watch = self._require_watch()
        if await self._idle() and not watch.waiting():
            return
        await watch.aborting(self._abort)

    async def _abort(self) -> None:
        await self.http.write("POST", f"/session/{self._require_thread()}/abort", {}, self._params)

    async def answer(self, ask_id: str, answer: str, message: str | None = None) -> None:
        """Answer a permission.

        Without a message, a rejection would end the turn without any outcome (seen on 1.18.33), so one is always sent
        along; then the turn goes on.
        """
        if answer not in _ANSWERS:
            raise InvalidError(f"unknown answer {answer!r}", hint="answer once, always or reject")
        body = {"reply": answer}
        if answer == "reject":
            body["message"] = message or REJECTED
        elif message is not None:
            body["message"] = message
        await self.http.write("POST", f"/permission/{ask_id}/reply", body, self._params)

    async def lookup(self, request_id: str) -> Delivery:
        watch = self._require_watch()
        try:
            found = await watch.history().find(request_id)
        except (UnavailableError, UncertainError):
            return Delivery.UNKNOWN
        if found:
            return Delivery.FOUND
        # OpenCode answers before it stores the prompt: while the server that was asked lives, it may still appear.
        return Delivery.UNKNOWN if watch.may_appear(request_id) else Delivery.ABSENT

    async def observe(self) -> AsyncGenerator[Batch, None]:
        watch = self._require_watch()
        async with contextlib.aclosing(watch.batches()) as batches:
            async for batch in batches:
                yield batch

    async def recover(self) -> Batch:
        return await self._require_watch().recover()

    async def busy(self) -> bool:
        if self._thread is None:
            return False
        try:
            return not await self._idle()
        except UnavailableError:
            return False

    async def alive(self) -> bool:
        return await self._engine.alive()

    async def stop(self) -> None:
        if self._watch is not None:
            await self._watch.close()
        await self._engine.stop()

    async def detach(self) -> None:
        if self._watch is not None:
            await self._watch.close()
        await self._engine.detach()

    async def _idle(self) -> bool:
        """Tell whether OpenCode lists our session as doing nothing (only busy ones are listed)."""
        answer = await self.http.read("/session/status", self._params)
        status = answer.value.get(self._require_thread()) if isinstance(answer.value, dict) else None
        return not isinstance(status, dict) or status.get("type") == "idle"

    def _require_thread(self) -> str:
        if self._thread is None:
            raise UnavailableError("no OpenCode conversation is open", hint="open the thread first")
        return self._thread

    def _require_watch(self) -> Watch:
        if self._watch is None:
            raise UnavailableError("no OpenCode conversation is open", hint="start the harness and open the thread")
        return self._watch


def _parse_model(model: str | None) -> dict[str, str] | None:
    if model is None:
        return None
    provider, slash, name = model.partition("/")
    if not (provider and slash and name):
        raise InvalidError(f"not an OpenCode model: {model!r}", hint="write provider/model, e.g. anthropic/claude-x")
    return {"providerID": provider, "modelID": name}
