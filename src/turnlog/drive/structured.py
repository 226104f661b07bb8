"""Structured answers where the provider's own way is missing or harmful: ask in words, check, ask again (emulated)."""

from __future__ import annotations

import re
from typing import Any, Final

import jsonschema
from referencing import Registry
from referencing.exceptions import Unresolvable

from turnlog.errors import InvalidError
from turnlog.receipts import canonical, decode

Schema = dict[str, Any] | bool
TRIES: Final = 3
_FENCE: Final = re.compile(r"^```[\w-]*\s*\n(.*?)\n?```$", re.DOTALL)


def request(text: str, schema: Schema) -> str:
    """Return the prompt with the demand for JSON behind it."""
    return (
        f"{text}\n\nGive your final answer as a single JSON value and nothing else: no prose, no code fence. "
        f"It must be valid against this JSON Schema:\n{canonical(schema)}"
    )


def again(problem: str) -> str:
    """Return the prompt that asks for a corrected answer."""
    return f"Your answer is not valid: {problem}\nAnswer again with only the JSON value that fits the schema."


def read(text: str, schema: Schema) -> tuple[Any, str | None]:
    """Parse and check an answer; return (value, None) or (None, what is wrong)."""
    body = text.strip()
    fenced = _FENCE.match(body)
    try:
        value = decode(fenced.group(1) if fenced else body)
    except InvalidError as error:
        return None, error.message
    validator_class = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    # An empty registry: without it a `$ref` to elsewhere would be fetched from the network (promise 9).
    validator = validator_class(schema, registry=Registry())
    try:
        problem = next(iter(validator.iter_errors(value)), None)
    except Unresolvable as error:
        return None, f"the schema refers to something that is not in it: {error}"
    if problem is None:
        return value, None
    return None, f"{problem.json_path}: {problem.message[:300]}"
