"""The private files by which an engine is found again: who it is, who owns it, and its password.

Three files of one random name in the state folder: ``….json`` (this record), ``….password`` and ``….log``.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import msgspec

from turnlog.errors import InvalidError
from turnlog.harness import HarnessConfig
from turnlog.process import Liveness, ProcessIdentity, liveness
from turnlog.redact import sanitise

USERNAME: Final = "opencode"


class Record(msgspec.Struct, frozen=True):
    """What the state folder says about an engine we started."""

    endpoint: str
    cwd: str
    permissions: str
    engine: ProcessIdentity
    owner: ProcessIdentity | None


def is_dead(identity: ProcessIdentity) -> bool:
    """Tell whether a recorded process certainly ended."""
    return liveness(identity.boot_id, identity.pid, identity.started_at) is Liveness.DEAD


def write_private(path: Path, content: bytes) -> None:
    """Write a 0600 file at once: a reader sees the old or the new content."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    temporary.replace(path)


def read_record(path: Path) -> Record | None:
    """Return the record in a file; None when there is none that can be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Record)
    except (OSError, msgspec.DecodeError):
        return None


def read_password(record: Path) -> str | None:
    """Return the password that belongs to a record, or None."""
    try:
        return record.with_suffix(".password").read_text(encoding="utf-8")
    except OSError:
        return None


def forget(record: Path) -> None:
    """Remove the record and the secret of an engine that is gone; its log stays for the person who looks."""
    for path in (record, record.with_suffix(".password")):
        with contextlib.suppress(OSError):
            path.unlink()


def write_record(path: Path, record: Record) -> None:
    """Write a record."""
    write_private(path, msgspec.json.encode(record))


def living_records(folder: Path) -> list[tuple[Path, Record]]:
    """Return the records of engines that may still run; those of dead ones are removed."""
    found = []
    for path in sorted(folder.glob("opencode-*.json")):
        record = read_record(path)
        if record is None or is_dead(record.engine):
            forget(path)
        else:
            found.append((path, record))
    return found


def credentials(endpoint: str, config: HarnessConfig) -> tuple[str, tuple[str, str] | None]:
    """Return the endpoint without user info, and the credentials: its own, a record's, or the environment's."""
    parts = urlsplit(endpoint if "://" in endpoint else f"http://{endpoint}")
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise InvalidError(f"not an endpoint: {sanitise(endpoint)}", hint="give http://host:port")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    netloc = f"{host}:{parts.port}" if parts.port else host
    base = urlunsplit((parts.scheme, netloc, parts.path.rstrip("/"), "", ""))
    if parts.password is not None:
        return base, (parts.username or USERNAME, parts.password)
    for path, record in living_records(config.state_dir):
        if record.endpoint == base and (password := read_password(path)) is not None:
            return base, (USERNAME, password)
    environment = {**os.environ, **config.env}
    password = environment.get("OPENCODE_SERVER_PASSWORD")
    return base, (environment.get("OPENCODE_SERVER_USERNAME", USERNAME), password) if password else None
