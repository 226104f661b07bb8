"""Price lists as plain data: rules that tell which models a price is for, and the prices. Pure but for one file.

The library that the bundled prices come from takes longer to import than a report may take. What it says of every model
is therefore kept as data, made once for each release of it: turnlog brings that of the release it was built with.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from turnlog.usage.models import Name, same_model
from turnlog.usage.prices import Plan

PACKAGED: Final = Path(__file__).with_name("pricetable.json")
"""The lists that turnlog brings."""


class Is(msgspec.Struct, frozen=True, array_like=True, tag="is"):
    """The name itself."""

    text: str


class Begins(msgspec.Struct, frozen=True, array_like=True, tag="begins"):
    """Names with nothing but a date or a version behind a beginning."""

    text: str


class Ends(msgspec.Struct, frozen=True, array_like=True, tag="ends"):
    """Names with nothing but a region before an end."""

    text: str


class Holds(msgspec.Struct, frozen=True, array_like=True, tag="holds"):
    """Names with nothing but a region before, and a date or a version behind."""

    text: str


class Fits(msgspec.Struct, frozen=True, array_like=True, tag="fits"):
    """Names in which an expression is found."""

    pattern: str


class OneOf(msgspec.Struct, frozen=True, array_like=True, tag="one"):
    """Names that any of these means."""

    rules: tuple[Rule, ...]


class AllOf(msgspec.Struct, frozen=True, array_like=True, tag="all"):
    """Names that all of these mean."""

    rules: tuple[Rule, ...]


Rule = Is | Begins | Ends | Holds | Fits | OneOf | AllOf


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One model of a list. Without a plan it is known to have no price that calls can be given."""

    rule: Rule
    plan: Plan | None


class Service(msgspec.Struct, frozen=True):
    """The list of one service, in the order in which entries are tried, and whose lists count after its own."""

    entries: tuple[Entry, ...]
    then: tuple[str, ...] = ()


class _File(msgspec.Struct, frozen=True):
    """``digest`` names the data that the lists were made from. A list is decoded when it is asked for."""

    digest: str
    services: dict[str, msgspec.Raw]


_file: Final = msgspec.json.Decoder(_File).decode
_service: Final = msgspec.json.Decoder(Service).decode


class Table:
    """Price lists by service."""

    def __init__(self, services: Mapping[str, msgspec.Raw]) -> None:
        self._raw = services
        self._read: dict[str, Service | None] = {}

    def plan_of(self, name: Name) -> Plan | None:
        """Return the prices of a model by its service's list, or by its maker's where the service has none of its own.

        The first entry that means the name counts. O(entries of the lists). Raises msgspec.DecodeError for a damaged
        list.
        """
        service = self._list(name.service)
        if service is None:
            return None
        lists = [service, *(found for each in service.then if (found := self._list(each)) is not None)]
        for spelling in name.spellings:
            for each in lists:
                for entry in each.entries:
                    if _means(entry.rule, spelling):
                        return entry.plan
        return None

    def _list(self, name: str) -> Service | None:
        if name not in self._read:
            raw = self._raw.get(name)
            self._read[name] = None if raw is None else _service(raw)
        return self._read[name]


def _means(rule: Rule, name: str) -> bool:
    """Tell whether a rule means this very model: rules are written for prefixes, and new models share them."""
    match rule:
        case Is():
            return rule.text == name
        case Begins():
            return same_model(name, rule.text)
        case Ends():
            return same_model(name, rule.text, before=True, after=False)
        case Holds():
            return same_model(name, rule.text, before=True)
        case Fits():
            return re.search(rule.pattern, name) is not None
        case OneOf():
            return any(_means(each, name) for each in rule.rules)
        case AllOf():
            return all(_means(each, name) for each in rule.rules)


def load(path: Path, digest: str) -> Table | None:
    """Read the lists that were made from the data that ``digest`` names; None where these are not there, or damaged."""
    try:
        file = _file(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return None
    return Table(file.services) if file.digest == digest else None


def read(text: bytes) -> Table:
    """Read what ``dump`` returned."""
    return Table(_file(text).services)


def dump(digest: str, services: Iterable[tuple[str, Service]]) -> bytes:
    """Return lists as the text that ``load`` reads, one model a line."""
    encode = msgspec.json.encode
    parts = []
    for name, service in services:
        entries = b",\n".join(encode(entry) for entry in service.entries)
        parts.append(encode(name) + b':{"then":' + encode(service.then) + b',"entries":[\n' + entries + b"\n]}")
    return b'{"digest":' + encode(digest) + b',"services":{\n' + b",\n".join(parts) + b"\n}}\n"
