"""Answers to a JSON Schema: what Codex passes to its model, and what is asked in words instead.

The model's API takes only schemas of a strict kind: objects name all their properties, all are required, nothing else
is allowed. Any other schema makes the whole turn fail with a 400, so that one is asked for in the prompt. Either way
the answer is checked here before it counts as a value.

The schema of each request is kept in the state folder: the history does not tell it, and the same answer must read the
same after a crash.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import msgspec

from turnlog.harness.codex.decode import Schema
from turnlog.receipts import canonical

_FILE: Final = "codex-schemas.jsonl"
_KEYWORDS: Final = frozenset(
    {
        *("type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf", "$ref", "$defs"),
        *("description", "title", "pattern", "format", "multipleOf", "maximum", "exclusiveMaximum", "minimum"),
        *("exclusiveMinimum", "minItems", "maxItems", "$schema", "definitions"),
    }
)


class _Entry(msgspec.Struct, frozen=True):
    request: str
    schema: Any


class Schemas:
    """The schemas that requests of one conversation asked for."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FILE
        self._known: dict[str, Schema] | None = None

    def keep(self, request: str, schema: Schema) -> None:
        """Remember a schema, on disk first."""
        known = self._load()
        line = canonical({"request": request, "schema": schema}) + "\n"
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            file.write(line.encode())
        known[request] = schema

    def of(self, request: str | None) -> Schema | None:
        """Return the schema of a request, or None."""
        return None if request is None else self._load().get(request)

    def _load(self) -> dict[str, Schema]:
        if self._known is None:
            self._known = {}
            try:
                lines = self._path.read_bytes().splitlines()
            except OSError:
                lines = []
            for line in lines:
                try:
                    entry = msgspec.json.decode(line, type=_Entry)
                except msgspec.DecodeError:
                    continue  # torn by a crash; its request never left
                self._known[entry.request] = entry.schema
        return self._known


def strict(schema: Any, *, root: bool = True) -> bool:
    """Tell whether the model's API takes a schema as it is."""
    if not isinstance(schema, dict) or not _KEYWORDS.issuperset(schema):
        return False
    if root and (schema.get("type") != "object" or "anyOf" in schema):
        return False
    parts: list[Any] = [schema["items"]] if "items" in schema else []
    for name in ("properties", "$defs", "definitions"):
        inner = schema.get(name, {})
        if not isinstance(inner, dict):
            return False
        parts += inner.values()
    choices, required = schema.get("anyOf", []), schema.get("required", [])
    if not isinstance(choices, list) or not isinstance(required, list):
        return False
    if schema.get("type") == "object" or "properties" in schema:
        every = set(required) == schema.get("properties", {}).keys()
        if schema.get("additionalProperties") is not False or not every:
            return False
    return all(strict(part, root=False) for part in (*parts, *choices))


def demand(text: str, schema: Schema) -> str:
    """Return a prompt with the wish for JSON behind it."""
    return (
        f"{text}\n\nGive your final answer as a single JSON value and nothing else: no prose, no code fence. "
        f"It must be valid against this JSON Schema:\n{canonical(schema)}"
    )
