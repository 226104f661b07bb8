"""A PostgreSQL ledger's URL: what the connection needs, and how it is named without secrets."""

from __future__ import annotations

import math
from typing import Any, Final
from urllib.parse import quote, urlencode

import psycopg
import psycopg.conninfo

from turnlog.errors import InvalidError

_SHOWN: Final = ("sslmode", "sslrootcert", "service", "options", "target_session_attrs")
_SECRET: Final = ("password", "sslpassword", "scram_client_key", "scram_server_key", "oauth_client_secret")
_DEFAULTS: Final[dict[str, str | int]] = {
    # A server that cannot be reached is told within seconds; a connection that died is noticed without any traffic.
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "application_name": "turnlog",
    "client_encoding": "UTF8",
}


class Place:
    """Where a ledger is: libpq's own parameters, all of them (TLS, service files, several hosts) passed on."""

    def __init__(self, url: str) -> None:
        """Parse ``postgresql://…`` or ``postgres://…``. Raises InvalidError without the URL: it may hold a password."""
        try:
            named = psycopg.conninfo.conninfo_to_dict(url)
        except psycopg.Error:
            raise InvalidError(
                "the ledger's PostgreSQL URL cannot be understood",
                hint="write postgresql://user@host:port/database?sslmode=require, special characters as %XX",
            ) from None
        given: dict[str, Any] = {key: value for key, value in named.items() if value is not None}
        self.database = str(given.get("dbname") or "")
        self.secrets = tuple(str(given[name]) for name in _SECRET if given.get(name))
        self.url = _shown(given)
        self.parameters: dict[str, Any] = {**_DEFAULTS, **given}

    def hide(self, text: str) -> str:
        """Return ``text`` without this place's secrets, however they are spelled."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            for spelling in (secret, quote(secret, safe="")):
                text = text.replace(spelling, "[redacted]")
        return text


def _shown(given: dict[str, Any]) -> str:
    user = f"{quote(str(given['user']), safe='')}@" if given.get("user") else ""
    hosts = str(given.get("host") or given.get("hostaddr") or "").split(",")
    ports = str(given.get("port") or "").split(",")
    ports *= math.ceil(len(hosts) / len(ports))
    places = []
    extra = {}
    for host, port in zip(hosts, ports, strict=False):
        if host.startswith("/"):  # a folder of Unix sockets has no place before the path of a URL
            extra = {"host": host, **({"port": port} if port else {})}
        else:
            places.append((f"[{host}]" if ":" in host else quote(host)) + (f":{port}" if port else ""))
    extra |= {name: str(given[name]) for name in _SHOWN if given.get(name)}
    query = f"?{urlencode(extra, safe='/')}" if extra else ""
    return f"postgresql://{user}{','.join(places)}/{quote(str(given.get('dbname') or ''), safe='')}{query}"
