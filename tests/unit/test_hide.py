"""Looking only where a secret can be finds the same secrets."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from turnlog.queries.hide import hide
from turnlog.redact import sanitise

PARTS = [
    *("plain words ", "\n", "\n\n", "\r\n", "  ", ":", "=", '"', "'", "\\", '\\"', "{", "}", ",", " \t\n \n"),
    *("api_key", "API-KEY", '"api_key"', "password", "key", '"key"', "x-api-key", "tokens", "secretary", "monkey="),
    *(
        "Bearer",
        "authorization:",
        "Set-Cookie: a=b; c=d",
        "https://me:pw@host/x",
        "me@host",
        "://",
        "user@",
        "s\u017fecret",
    ),
    *(
        "sk-proj-1234567890abcdefghij",
        "ghp_" + "a1" * 12,
        "AKIA" + "A" * 16,
        "eyJabcdefghij.abcdefghij.x",
        "xoxb-1234567890a",
    ),
    *("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "QUJD" * 16, "QUJD" * 8 + "\n", "\\n"),
    *(
        "hf_" + "a1" * 20,
        "123456789:AA" + "b" * 30,
        "--password ",
        " -u me:pw ",
        "password = ",
        "sshpass -p",
        "login me ",
    ),
    *("SK" + "a1" * 16, "-AC" + "a1" * 16, "\\nglrtr-" + "a1" * 12, "N" + "a1" * 12 + ".a1-b_2." + "x_Y-1" * 6),
    *("https://discord.com/api/webhooks/12/", "hooks.slack.com/services/", "postgres://a:b/c@", ";pwd=", "?sig="),
    *("pat" + "a1" * 7 + "." + "a1" * 32, "AKIA" + "A" * 15, "sk-" + "a1" * 9, "desk_" + "a1" * 9),
    *("value", "hunter2", '"hunter2"', "abc.def", "\u212aey=1", "\u0130"),
]


@settings(max_examples=400)
@given(st.lists(st.sampled_from(PARTS), max_size=60))
def test_the_same_is_hidden(parts: list[str]) -> None:
    text = "".join(parts)
    lines, line = "pad\n" * 150, "pad " * 150
    for padded in (text, f"{lines}{text}", f"{text}\n{lines}", f"{line}{text}\n{text}"):
        assert hide(padded) == sanitise(padded)


def test_a_secret_on_lines_of_its_own_is_hidden() -> None:
    text = "pad\n" * 200 + '"api_key"\n\n  :\n\n  "hunter2"\n' + "pad\n" * 200
    assert "hunter2" not in hide(text)
    assert hide(text) == sanitise(text)
