"""What must never be stored or shown: secrets in texts (6.2.5, D12), terminal escapes in foreign text.

``sanitise`` is for texts that become durable or visible as errors, and for what is shown and exported; it rather hides
a harmless word beside a secret than a secret beside a harmless word. It is a pure function, so reading the same error
again gives the same receipt.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final

__all__ = ["KEYS", "private_keys", "sanitise", "sanitise_value", "strip_terminal"]

HIDDEN: Final = "[redacted]"
MAX_ERROR_TEXT: Final = 16_384
"""Characters kept of one string inside a stored error: a provider may answer with a whole HTML page."""

_NAMES: Final = (
    r"(?:proxy[-_]?)?authorization|(?:set[-_]?)?cookie|"
    r"_*(?:[a-z0-9]+[-_])*(?:[a-z0-9]*(?:api[-_]?key|access[-_]?key(?:[-_]?id)?|account[-_]?key|private[-_]?key|"
    r"secret(?:[-_]?access)?(?:[-_]?key)?|signing[-_]?key|encryption[-_]?key|master[-_]?key|"
    r"shared[-_]?access[-_]?signature|passw(?:or)?d|passphrase|token)|(?:mysql|db|database|sql|pg|user|admin|root|ftp|smtp|mail|redis)_pwd)"
)
_START: Final = r"(?:(?<![A-Za-z0-9_])(?<![A-Za-z0-9_]-)|(?<=\\[nrt]))"
"""A word begins here; in a quoted JSON text the letter of a line end's escape stands right before it."""

_EDGE: Final = r"(?:\b|(?<=\\[nrt]))"
_LINE: Final = r"(?:(?!\\[nr])[^\r\n])*"
"""The rest of a line, also of one inside a quoted JSON text."""

_IS: Final = r"[ \t]*(?::=|={1,3}>?|:)[ \t]*"
_VALUE: Final = r"(?!\\+[\"'])(?:(?!\\[nrt])[^\s&\"'<>])+"
"""What stands without blanks behind an equals sign. A line end's escape ends it: what follows may be a name."""

_QUOTED: Final = r"(?P<{0}>[\"'])(?:\\.|(?!(?P={0})|\\).)*(?P={0})?|(?P<{1}>\\+[\"'])(?:(?!(?P={1})).)*(?P={1})?"
_BARE: Final = r"(?:[^\s,;\"'\\(){}\[\]<>]|\\(?![nrt\"']))"
_PLAIN: Final = rf"(?=(?:(?!\d){_BARE}){{0,63}}\d){_BARE}{{6,}}"
"""What stands without quotes behind a name and is no word of a text or of a program: it has a digit."""

_GIVEN: Final = rf"(?P<d>=)(?!=)(?:{_QUOTED.format('a', 'b')}|{_VALUE})"
_TOLD: Final = rf"(?P<c>{_IS})(?:{_QUOTED.format('q', 'w')}|{_PLAIN})"

_HEX: Final = "[0-9a-f]"
_ALNUM: Final = "[A-Za-z0-9]"
_WORD: Final = r"[A-Za-z0-9_\-]"
_DIGIT: Final = r"(?=[A-Za-z_\-]*\d)"
"""A digit comes before anything that is no letter: what has none is rather a name of a program."""

_END: Final = r"(?![A-Za-z0-9_])"

KEYS: Final = (
    ("sk- rk- pk- sk_ rk_ pk_", rf"{_DIGIT}{_WORD}{{17,}}"),
    ("sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ pk_live_ pk_test_", rf"{_ALNUM}{{16,}}"),
    ("ghp_ gho_ ghu_ ghs_ ghr_", rf"{_ALNUM}{{20,}}"),
    ("github_pat_", rf"{_WORD}{{20,}}"),
    (
        "glpat- glptt- glrt- glrtr- gldt- glcbt- glsoat- glft- glffct- glimt- glagent- gloas- GR1348941",
        rf"{_WORD}{{18,}}(?:\.[0-9a-z]{{2}}\.[0-9a-z]{{7,}})?",
    ),
    ("xapp- GOCSPX- dckr_pat_ dckr_oat_ xai- pplx- tvly- nvapi- FLWSECK- FLWSECK_TEST-", rf"{_WORD}{{20,}}"),
    ("AKIA ASIA ABIA ACCA", r"[0-9A-Z]{16}"),
    ("AIza bedrock-api-key- HRKU- CFPAT- figd_ tfp_ fio-u- tk-us-", rf"{_WORD}{{30,}}"),
    ("hf_ npm_ gsk_ r8_ api_org_ nfp_ vcp_ vca_ vci_ vcr_ vck_ phx_ phc_ jina_ csk- pcsk_ tgp_v1_", rf"{_WORD}{{30,}}"),
    ("ATATT3 ATCTT3", rf"{_WORD}{{30,}}(?:=[0-9A-F]{{8}})?"),
    ("pypi- glc_eyJ ops_eyJ sntrys_eyJ", rf"{_WORD}{{50,}}"),
    ("lin_api_ lin_oauth_ ntn_ glsa_ tskey- rdme_ CLOJARS_ duffel_live_ duffel_test_", rf"{_WORD}{{30,}}"),
    (
        "pscale_tkn_ pscale_pw_ pscale_oauth_ sb_secret_ sq0atp- sq0csp- lsv2_pt_ lsv2_sk_ xkeysib- fo1_",
        rf"{_WORD}{{20,}}",
    ),
    ("dop_v1_ doo_v1_ dor_v1_ dapi sbp_ pul- rubygems_ sntryu_ key_ e2b_ shippo_live_ shippo_test_", rf"{_HEX}{{32,}}"),
    ("shpat_ shpca_ shppa_ shpss_", rf"{_HEX}{{20,}}"),
    ("SK AC key- fc-", rf"{_HEX}{{32}}{_END}"),
    ("secret_ ion_", rf"{_ALNUM}{{42,43}}{_END}"),
    ("sess-", rf"{_ALNUM}{{40}}{_END}"),
    ("ATBB cio AKID p8e- pnu_", rf"{_DIGIT}{_ALNUM}{{32,36}}{_END}"),
    ("LTAI", rf"{_DIGIT}{_ALNUM}{{16,20}}{_END}"),
    ("AKCp EZAK EZTK cmVmd oy2", rf"{_DIGIT}{_ALNUM}{{43,}}{_END}"),
    ("fw_", rf"{_DIGIT}{_ALNUM}{{22,}}{_END}"),
    ("PMAK- NRAK- NRJS- NRII- AGE-SECRET-KEY-1", rf"{_WORD}{{19,}}"),
)
"""How providers begin their keys, and what follows. The first 20 characters of each are ``_WORD``; case matters."""

_SHAPES: Final = (
    r"xox[a-z]-[A-Za-z0-9\-]{10,}",
    rf"eyJ{_WORD}{{8,}}\.{_WORD}{{8,}}\.{_WORD}*(?:\.{_WORD}+\.{_WORD}+)?",
    rf"ya29\.{_WORD}{{20,}}|1//0{_WORD}{{30,}}|AQ\.Ab{_WORD}{{30,}}",
    rf"hv[sbr]\.{_WORD}{{20,}}|dp\.(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9]{{20,}}|SG\.{_WORD}{{16,}}\.{_WORD}{{16,}}",
    rf"whsec_[A-Za-z0-9+/=]{{20,}}|[0-9]{{8,10}}:AA{_WORD}{{30,}}|(?-i:fm[12][ar]?_|ABSK)[A-Za-z0-9+/=]{{50,}}",
    rf"(?-i:[MNO]{_WORD}{{23,27}}\.{_WORD}{{6}}\.{_WORD}{{27,}}|mfa\.{_WORD}{{60,}}|pat[A-Za-z0-9]{{14}}\.{_HEX}{{64}})",
    r"(?-i:[A-Za-z0-9_~.\-]{3}[78]Q~[A-Za-z0-9_~.\-]{31,34}|[A-Za-z0-9]{42}\+ACR[A-Za-z0-9]{6})",
    rf"(?-i:[A-Za-z0-9]{{76}}AZDO[A-Za-z0-9]{{4}}|[A-Za-z0-9]{{14}}\.atlasv1\.{_WORD}{{60,}})",
    rf"(?-i:v1\.0-{_HEX}{{24}}-{_HEX}{{100,}}|dt0[a-z][0-9]{{2}}\.[A-Z0-9]{{24}}\.[A-Z0-9]{{64}})",
)
"""Other shapes of keys, wherever they stand."""

_LONGEST: Final = 256
"""Characters of a private key's line, and of what parts two of them."""

_LEAST: Final = 40
"""Characters that the rest of a private key has at least: fewer may be words before its last line."""

_MARK: Final = r"-----{} (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"
_BREAK: Final = r"(?:\\[nr]|\s)"


_DATABASE: Final = (
    rf"(?P<s>{_EDGE}(?:postgres(?:ql)?|mysql|mariadb|mongodb|rediss?|amqps?|mssql|sqlserver|oracle|clickhouse"
    r"|cockroachdb|snowflake|ldaps?|smtps?|ftps?|sftp)(?:\+[a-z0-9]+)*://)"
    r"[^\s:/@\"'<>]{0,128}:(?!\d{1,5}/)[^\s@\"'<>]{1,256}@"
)
"""A password in a URL, with slashes that nobody wrote as %2F. Elsewhere what stands there may be a port and a path."""

_HOOK: Final = (
    rf"(?P<s>{_EDGE}(?:discord(?:app)?\.com/api/(?:v\d+/)?webhooks/\d+/"
    r"|hooks\.slack\.com/(?:services|workflows|triggers)/|webhook\.office\.com/webhookb2/))"
    r"(?!\[redacted\])[A-Za-z0-9_\-/@]+"
)
"""Whoever knows such an address may write there."""


def _beginnings() -> str:
    return "|".join(rf"(?:{starts.replace(' ', '|')}){rest}" for starts, rest in KEYS)


@cache
def _rules() -> tuple[tuple[re.Pattern[str], str], ...]:
    """Return the rules, compiled when the first text is looked at: every command would pay for it."""
    return tuple(
        (re.compile(pattern, re.IGNORECASE), replacement)
        for pattern, replacement in (
            # {"api_key": "…"}, also with single quotes, and inside a quoted JSON text where each quote has a backslash.
            (
                rf"""(?P<q>["'])(?P<n>{_NAMES}|key)(?P=q)(?P<c>\s*:\s*)(?P<v>["'])(?:\\.|(?!(?P=v)|\\).)*(?P=v)?""",
                rf"\g<q>\g<n>\g<q>\g<c>\g<v>{HIDDEN}\g<v>",
            ),
            (
                rf"""(?P<q>\\+["'])(?P<n>{_NAMES}|key)(?P=q)(?P<c>\s*:\s*)(?P=q)(?:(?!(?P=q)).)*(?P=q)?""",
                rf"\g<q>\g<n>\g<q>\g<c>\g<q>{HIDDEN}\g<q>",
            ),
            (
                rf"""(?P<q>\\*["'])(?P<n>{_NAMES})(?P=q)(?P<c>\s*:\s*)(?P<v>[^\s"'\\,\]}}\[{{]+)""",
                rf"\g<q>\g<n>\g<q>\g<c>{HIDDEN}",
            ),
            (rf"{_EDGE}bearer\s+(?!\[redacted\])[^\s,;\"'\\]+", f"bearer {HIDDEN}"),
            (rf"{_EDGE}authorization:(?:(?!\\[nr])[^\r\n,])*", f"authorization: {HIDDEN}"),
            # Cookies hold commas and semicolons of their own: everything to the end of the line goes.
            (rf"{_EDGE}(?P<n>(?:set-)?cookie):{_LINE}", rf"\g<n>: {HIDDEN}"),
            (
                rf"{_START}(?P<n>x[-_]api[-_]?key|x-goog-api-key|api[-_]?key)(?P<c>\s*:\s*)[^\s,;\"'\\]+",
                rf"\g<n>\g<c>{HIDDEN}",
            ),
            # token=…, password = "…", secret: '…', and the same inside a quoted JSON text.
            (rf"{_START}(?P<n>{_NAMES})(?:{_GIVEN}|{_TOLD})", rf"\g<n>\g<d>\g<c>{HIDDEN}"),
            (rf"{_START}(?P<n>key=)(?:{_QUOTED.format('a', 'b')}|{_VALUE})", rf"\g<n>{HIDDEN}"),
            # What commands are given.
            (rf"(?P<n>(?<![A-Za-z0-9_\-])--?(?:{_NAMES})[ \t]+)(?!-)[^\s\"'\\]+", rf"\g<n>{HIDDEN}"),
            (
                r"(?P<n>\s(?:-u|--user)[ \t]+(?:\\*[\"'])?)(?!\d+:\d+\b)[^\s:/\"'\\]+:[^\s\"'\\]+",
                rf"\g<n>{HIDDEN}",
            ),
            (rf"(?P<n>{_EDGE}sshpass[ \t]+-p[ \t]*)\S+", rf"\g<n>{HIDDEN}"),
            (rf"(?P<n>{_EDGE}login[ \t]+\S+[ \t]+password[ \t]+)[^\s\"'\\]+", rf"\g<n>{HIDDEN}"),
            (r"(?P<s>(?<![a-z0-9+.\-])[a-z0-9+.\-]*://)[^\s/\"'<>@]+(?:@[^\s/\"'<>@]+)*@", rf"\g<s>{HIDDEN}@"),
            (_DATABASE, rf"\g<s>{HIDDEN}@"),
            (_HOOK, rf"\g<s>{HIDDEN}"),
            (r"(?P<n>(?:[?&;]|\\u0026)sig=|;[ \t]*pwd=)(?!\[redacted\])[^\s&;\"'\\<>]+", rf"\g<n>{HIDDEN}"),
            (rf"{_EDGE}(?:{'|'.join(_SHAPES)})", HIDDEN),
            # Few words are as long as a key: what is shorter need not be compared with all their beginnings.
            (rf"{_EDGE}(?={_WORD}{{20}})(?-i:{_beginnings()})", HIDDEN),
        )
    )


@cache
def _envelopes() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Return what finds a private key from its first line on, its last line, and the last and any line before that."""
    begin, end = _MARK.format("BEGIN"), _MARK.format("END")
    short = rf"[A-Za-z0-9+/=]{{1,15}}(?={_BREAK}*-----|{_BREAK}*\Z)"
    line = rf"{_BREAK}*(?:[A-Za-z0-9+/=]{{16,}}|[A-Za-z\-]+: [^\r\n\\]*|{short})"
    whole = rf"{begin}(?:{line})*(?:{_BREAK}*{end})?"
    before = r"(?:\\[nr]|(?<![A-Za-z0-9+/=]))[A-Za-z0-9+/=]"
    ends = rf"{_BREAK}*\Z"
    return re.compile(whole), re.compile(end), re.compile(f"{before}+{ends}"), re.compile(f"{before}{{32,}}{ends}")


_SECRET_NAME: Final = re.compile(_NAMES, re.IGNORECASE)

_ESCAPES: Final = re.compile(
    "\x1b\\[[0-?]*[ -/]*[@-~]?"  # CSI: colours, cursor
    "|\x1b[\\]PX^_][^\x07\x1b\x9c\n]*(?:\x07|\x1b\\\\|\x9c)?"  # OSC, DCS and kin: titles, clipboard
    "|\x9b[0-?]*[ -/]*[@-~]?"
    "|[\x9d\x90\x98\x9e\x9f][^\x07\x1b\x9c\n]*(?:\x07|\x1b\\\\|\x9c)?"
    "|\x1b[ -/]*[0-~]?"
)
_CONTROLS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def sanitise(text: str) -> str:
    """Return ``text`` with everything that looks like a secret replaced (6.2.5, D12)."""
    if keys := private_keys(text):
        ends = [0, *(end for _, end in keys)]
        text = HIDDEN.join(text[end:start] for end, (start, _) in zip(ends, [*keys, (len(text), 0)], strict=True))
    for pattern, replacement in _rules():
        text = pattern.sub(replacement, text)
    return text


def private_keys(text: str) -> list[tuple[int, int]]:
    """Return where private keys in their envelopes stand, as far as they are there, in order. O(text).

    A text that was cut may lack a key's first lines or its last ones.
    """
    if "PRIVATE KEY" not in text:
        return []
    whole, last, short, line = _envelopes()
    found = [match.span() for match in whole.finditer(text)]
    held = {end for _, end in found}
    for match in last.finditer(text):
        if match.end() in held:
            continue
        start, before = match.start(), short
        while (rest := before.search(text[max(start - _LONGEST, 0) : start])) is not None:
            start, before = start - (rest.end() - rest.start()), line
        if match.start() - start >= _LEAST:
            found.append((start, match.end()))
    return sorted(found)


def sanitise_value(value: Any) -> Any:
    """Return a JSON value with its strings sanitised, members with secret names hidden and long strings cut."""
    if isinstance(value, str):
        clean = sanitise(value)
        return clean if len(clean) <= MAX_ERROR_TEXT else f"{clean[:MAX_ERROR_TEXT]}… [cut]"
    if isinstance(value, list):
        return [sanitise_value(item) for item in value]
    if isinstance(value, dict):
        return {
            key: HIDDEN if item is not None and _SECRET_NAME.fullmatch(key) else sanitise_value(item)
            for key, item in value.items()
        }
    return value


def strip_terminal(text: str) -> str:
    """Return foreign text without terminal escapes, control and direction characters; LF and TAB stay."""
    return _CONTROLS.sub("", _ESCAPES.sub("", text))
