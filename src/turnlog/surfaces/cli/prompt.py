"""What a person wants to say to an agent, and what they want back: checked before anything else happens."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from turnlog.errors import InvalidError
from turnlog.surfaces.cli.words import note, one_line


def read_prompt(word: str) -> str:
    """Return the prompt; ``-`` reads it from standard input. Raises InvalidError."""
    if word != "-":
        return checked(word, "prompt")
    if sys.stdin is None:
        raise InvalidError("standard input is closed", hint="give the prompt as an argument")
    if sys.stdin.isatty():
        note("reading the prompt from the terminal; Ctrl-D ends it")
    raw = sys.stdin.buffer.read()
    try:
        return checked(raw.decode("utf-8"), "prompt")
    except UnicodeDecodeError as error:
        raise InvalidError(
            f"standard input is not UTF-8: byte {error.start} is 0x{raw[error.start]:02x}",
            hint="convert it first, for example with iconv",
        ) from None


def checked(text: str, name: str) -> str:
    """Return the text if it can be sent. Raises InvalidError."""
    if not text.strip():
        raise InvalidError(f"the {name} is empty", hint="say what the agent should do; `-` reads standard input")
    if "\x00" in text:
        raise InvalidError(
            f"the {name} holds a NUL character at position {text.index(chr(0))}", hint="remove it; other ones may stay"
        )
    return encodable(text, f"the {name}")


def encodable(text: str, name: str) -> str:
    """Return text that came from the operating system if it is proper Unicode. Raises InvalidError."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidError(f"{name} is not valid UTF-8", hint="set the terminal and the locale to UTF-8") from None
    return text


def read_schema(path: Path | None) -> dict[str, Any] | bool | None:
    """Return a JSON Schema from a file, checked against its own rules. Raises InvalidError."""
    if path is None:
        return None
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for

    from turnlog.receipts import decode

    try:
        schema = decode(path.expanduser().read_bytes())
    except OSError as error:
        raise InvalidError(f"cannot read {path}: {error.strerror}", hint="--schema names a file") from None
    except InvalidError as error:
        raise InvalidError(f"{path} is {error.message}", hint="--schema names a file with one JSON Schema") from None
    if not isinstance(schema, dict | bool):
        raise InvalidError(f"{path} is no JSON Schema", hint="a schema is an object, or true or false")
    kind: Any = validator_for(schema, default=Draft202012Validator)
    try:
        # With the format checker, patterns are compiled too: a broken one would fail only when the answer is there.
        kind.check_schema(schema, format_checker=kind.FORMAT_CHECKER)
    except SchemaError as error:
        raise InvalidError(
            f"{path} is no valid JSON Schema: {error.json_path}: {one_line(error.message, 200)}",
            hint="correct the schema; nothing was sent",
        ) from None
    return schema
