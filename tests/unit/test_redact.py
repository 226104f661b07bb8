"""Secrets leave error texts (6.2.5, D12); ordinary words stay; foreign text cannot drive the terminal."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.queries.hide import hide
from turnlog.redact import MAX_ERROR_TEXT, sanitise, sanitise_value, strip_terminal

SECRET = "s3cr3t-Value_42"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Authorization: Bearer abc, token=xyz", "authorization: [redacted], token=[redacted]"),
        ("sent bearer abc123 to it", "sent bearer [redacted] to it"),
        ("AUTHORIZATION: Basic dXNlcjpwdw==\nnext line", "authorization: [redacted]\nnext line"),
        ("key=abc&x=1", "key=[redacted]&x=1"),
        ("?access_token=abc", "?access_token=[redacted]"),
        ("api_key=abc def", "api_key=[redacted] def"),
    ],
)
def test_seed_rules(text: str, expected: str) -> None:
    assert sanitise(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        f'{{"api_key": "{SECRET}"}}',
        f"{{'apiKey': '{SECRET}'}}",
        f'{{"token":"{SECRET}","x":1}}',
        f'"{{\\"access_token\\": \\"{SECRET}\\"}}"',
        f'{{"client_secret" : "a\\"{SECRET}"}}',
        f'{{"password": "{SECRET}',  # cut off
        f"x-api-key: {SECRET}",
        f"X-Goog-Api-Key:{SECRET}",
        f"https://user:{SECRET}@host/path",
        f"postgresql://{SECRET}@db/x",
        f"proxy http://a:{SECRET}@b:1@proxy:3128",
        f"Cookie: a=1; session={SECRET}, b=2",
        f"set-cookie: sid={SECRET}; Path=/",
        f"OPENAI_API_KEY={SECRET}",
        f"AWS_SECRET_ACCESS_KEY={SECRET}",
        f"--password={SECRET}",
        f'token="a {SECRET}"',
        f"ANTHROPIC_AUTH_TOKEN='{SECRET}'",
        f"Incorrect API key provided: sk-ant-{SECRET}0123456789",
        f"ghp_{'a1' * 15}{SECRET}".replace(SECRET, ""),
        "AKIAABCDEFGHIJKLMNOP",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
    ],
)
def test_secrets_are_hidden(text: str) -> None:
    clean = sanitise(text)
    assert "[redacted]" in clean
    for word in (SECRET, "AKIAABC", "eyJzdWIi", "ghp_a1a1"):
        assert word not in clean
    assert sanitise(clean) == clean


DIGITS = "0123456789abcdef"


@pytest.mark.parametrize(
    "secret",
    [
        f"hf_{'aB1c' * 9}",
        f"npm_{'a1B2' * 9}",
        f"gsk_{'aB1c' * 13}",
        f"glpat-{'AbCd1' * 4}",
        f"pypi-AgEIcHlwaS5vcmc{'CJDA' * 20}",
        f"xai-{'aB1c' * 20}",
        f"pplx-{'aB1c' * 12}",
        f"tvly-{'aB1c' * 8}",
        f"r8_{'aB1c' * 9}",
        f"lin_api_{'aB1c' * 10}",
        f"hvs.{'CAESIJ' * 10}",
        f"dop_v1_{DIGITS * 4}",
        f"dp.pt.{'aB1' * 14}",
        f"SG.{'a1B2C3' * 4}.{'a1B2C3' * 7}",
        f"shpat_{DIGITS * 2}",
        f"dapi{DIGITS * 2}",
        "ASIAIOSFODNN7EXAMPLE",
        f"ya29.{'a0AfH6SMBx' * 5}",
        f"xapp-1-A0123456789-{'abcd' * 16}",
        f"123456789:AA{'Hk3' * 11}",
        f"AGE-SECRET-KEY-1{'QPZRY9X8' * 7}",
        f"SK{DIGITS * 2}",
        f"AC{DIGITS * 2}",
        f"MTE5{'aB1c' * 5}.GaB1c2.{'x_Y-1' * 7}abc",
        f"NzkyNzE1NDU0MTk2MDg4ODQy.X-hvzA.{'Ovy4' * 6}MCQ",
        f"mfa.{'aB1-c_' * 14}",
        f"sk_live_{'aBcD' * 6}",
        f"rk_live_{'aB1c' * 6}",
        f"sk-proj-{'aB_c' * 18}1T3BlbkFJ{'aB-c' * 18}",
        f"sk-svcacct-{'aB1c' * 18}",
        f"sk-or-v1-{DIGITS * 4}",
        f"sk-ant-oat01-{'aB1_' * 20}",
        f"glpat-{'aB1c' * 6}xyz.01.{'1a2b3c4d5'}",
        f"gloas-{DIGITS * 4}",
        f"glrtr-{'aB1c' * 5}",
        f"GR1348941{'aB1c' * 5}",
        f"github_pat_{'aB1c' * 5}1A_{'aB1c' * 14}abc",
        f"ABIA{'AB2D' * 4}",
        f"ABSK{'aB1+' * 32}=",
        f"bedrock-api-key-{'aB1c' * 20}",
        f"1//0{'aB1_' * 12}",
        f"AQ.Ab8{'aB1c' * 12}",
        f"abc8Q~{'aB1.' * 8}ab",
        f"{'aB1c' * 10}ab+ACR{'aB1cD2'}",
        f"{'aB1c' * 19}AZDO{'aB1c'}",
        f"hf_{'aBcD' * 8}ab",
        f"api_org_{'aBcD' * 8}ab",
        f"ATATT3{'xFfGF0' * 30}=1A2B3C4D",
        f"ATBB{'aB1c' * 8}",
        f"eyJhbGciOiJSU0Et{'.aB1c2D3e' * 4}",
        f"dckr_oat_{'aB1c' * 8}",
        f"lin_oauth_{DIGITS * 4}",
        f"ntn_{'1a2B' * 12}",
        f"secret_{'aB1c' * 10}aB1",
        f"sb_secret_{'aB1c' * 8}",
        f"glsa_{'aB1c' * 8}_1a2b3c4d",
        f"sntrys_eyJ{'aB1c' * 20}",
        f"tskey-auth-{'kB1c' * 3}CNTRL-{'aB1c' * 8}",
        f"pul-{DIGITS * 2}01234567",
        f"rubygems_{DIGITS * 3}",
        f"{'aB1c' * 3}aB.atlasv1.{'aB1c' * 16}",
        f"pat{'aB1c' * 3}aB.{DIGITS * 4}",
        f"PMAK-{DIGITS}01234567-{DIGITS * 2}ab",
        f"LTAI{'5tAb' * 5}",
        f"key-{DIGITS * 2}",
        f"lsv2_pt_{DIGITS * 2}_0123456789",
        f"fm2_{'aB1/' * 30}",
    ],
)
def test_keys_are_known_by_their_shapes(secret: str) -> None:
    for text, clean in (
        (f"it is {secret}, see", "it is [redacted], see"),
        (f'{{"command":"echo\\n{secret}\\nend"}}', '{"command":"echo\\n[redacted]\\nend"}'),
    ):
        assert sanitise(text) == clean
        padded = "pad\n" * 200
        assert hide(padded + text) == padded + clean


SAS = "https://a.blob.core.windows.net/c"
DISCORD_10 = "https://discordapp.com/api/v10/webhooks"


@pytest.mark.parametrize(
    ("line", "clean"),
    [
        ('export API_TOKEN="Hidden"', 'export API_TOKEN="[redacted]"'),
        ("password = 'Hidden'", "password = '[redacted]'"),
        ('secret_key: "Hidden"', 'secret_key: "[redacted]"'),
        ('apiKey: "Hidden"', 'apiKey: "[redacted]"'),
        ('githubToken := "Hidden"', 'githubToken := "[redacted]"'),
        ("password: hidden42", "password: [redacted]"),
        ("aws_secret_access_key = wJalrXUtnFEMIK7MDENG", "aws_secret_access_key = [redacted]"),
        ("PGPASSWORD=hidden psql", "PGPASSWORD=[redacted] psql"),
        ("MYSQL_PWD=hidden mysql", "MYSQL_PWD=[redacted] mysql"),
        ("//registry/:_authToken=hidden", "//registry/:_authToken=[redacted]"),
        ("psql --password hidden -h x", "psql --password [redacted] -h x"),
        ("curl -u me:hidden https://x", "curl -u [redacted] https://x"),
        ("sshpass -p hidden ssh x", "sshpass -p [redacted] ssh x"),
        ("machine x login me password hidden", "machine x login me password [redacted]"),
        ("AccountKey=hidden==;x", "AccountKey=[redacted]"),
        ("Authorization: Basic aGlkZGVu", "authorization: [redacted]"),
        ("Cookie: a=hidden; b=c", "Cookie: [redacted]"),
        ("x-api-key: hidden", "x-api-key: [redacted]"),
        ("DB_PWD=hidden make", "DB_PWD=[redacted] make"),
        ("Uid=sa;Pwd=hidden;", "Uid=sa;Pwd=[redacted];"),
        ("https://a.blob.core.windows.net/c?sp=r&sig=hidden%3D&se=1", f"{SAS}?sp=r&sig=[redacted]&se=1"),
        ("https://a/c?sp=r\\u0026sig=hidden", "https://a/c?sp=r\\u0026sig=[redacted]"),
        ("https://discord.com/api/webhooks/123456/hidden-_1", "https://discord.com/api/webhooks/123456/[redacted]"),
        ("https://discordapp.com/api/v10/webhooks/12/hidden", f"{DISCORD_10}/12/[redacted]"),
        ("https://hooks.slack.com/services/T1/B1/hidden", "https://hooks.slack.com/services/[redacted]"),
        ("https://a.webhook.office.com/webhookb2/1@2/x/hidden", "https://a.webhook.office.com/webhookb2/[redacted]"),
        ("postgres://app:p4/hidden@db:5432/x", "postgres://[redacted]@db:5432/x"),
        ("mongodb+srv://app:hidden@c0/x", "mongodb+srv://[redacted]@c0/x"),
        ("redis://:hidden@r:6379/0", "redis://[redacted]@r:6379/0"),
    ],
)
def test_values_are_hidden_behind_names_also_inside_a_quoted_json_text(line: str, clean: str) -> None:
    assert _same(sanitise(f"before\n{line}\nafter"), f"before\n{clean}\nafter")
    quoted = json.dumps({"command": f"before\n{line}"})
    hidden = sanitise(quoted)
    assert _same(hidden, json.dumps({"command": f"before\n{clean}"}))
    assert "idden" not in hidden
    padded = "pad\n" * 200
    assert hide(padded + quoted) == padded + hidden


def _same(clean: str, expected: str) -> bool:
    """Quotes around what is hidden may go with it, and behind a header the rest of its line."""
    without = re.compile(r"""[\\"'}]""")
    return without.sub("", clean) == without.sub("", expected)


KEY = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n{}-----END RSA PRIVATE KEY-----".format(
    "".join(f"{'Hidden' * 10}{row:04}\n" for row in range(20)) + "Hidden=\n"
)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        (KEY, "[redacted]"),
        (json.dumps(KEY), '"[redacted]"'),
        (KEY[400:], "[redacted]"),  # cut before
        (json.dumps(KEY[400:]), '"[redacted]"'),
        ("-----BEGIN PRIVATE KEY----- begins one", "[redacted] begins one"),
        ("the last line is -----END PRIVATE KEY-----", "the last line is -----END PRIVATE KEY-----"),
        ("-----BEGIN PUBLIC KEY-----\nMFww", "-----BEGIN PUBLIC KEY-----\nMFww"),
    ],
)
def test_a_private_key_is_hidden_whole_and_as_far_as_it_is_there(text: str, clean: str) -> None:
    assert sanitise(KEY[:400]) == "[redacted]"
    assert sanitise(f"a\n{text}\n(b)") == f"a\n{clean}\n(b)"
    padded = "pad (x)\n" * 200
    assert hide(f"{padded}{text}\n{padded}") == f"{padded}{clean}\n{padded}"


WORN = ["postgres://a:b/", f"{'MaB1c' * 5}.", "?sig=", "SK0a-", f"postgres:{'/' * 9}", ";pwd=", "pat", "0a", "8Q~"]


@pytest.mark.parametrize(
    "part", ["a-", "a--", "token:", "--token ", "http://a@", "-----BEGIN PRIVATE KEY-----\n", *WORN]
)
def test_a_text_of_nothing_but_beginnings_is_read_once(part: str) -> None:
    """It would take minutes otherwise."""
    assert len(sanitise(part * (500_000 // len(part)))) > 0


@pytest.mark.parametrize(
    "text",
    [
        "password: string;  token: str = None",
        "api_key = os.environ['NAME'] or get_token()",
        "docker run -u 1000:1000 image",
        "password: required",
        "monkey=banana",
        "turkey=roast and hotkey=ctrl-c",
        "sort_key=name primary-key=5",
        "max_tokens=4096 tokens=12",
        "the token is unexpected: }",
        "unexpected token: }",
        "see https://host/path@v2 and git@host:repo",
        "mailto a@b.c",
        "task-something-long-and-harmless",
        "model gpt-5.1 said 429 Too Many Requests",
        f"AC{DIGITS * 2}0",
        f"xAC{DIGITS * 2}",
        f"ac{DIGITS * 2}",
        f"commit {DIGITS * 2}01234567 and md5 {DIGITS * 2}",
        "SKIP ACCOUNT_NUMBER_OF_THE_THING and key-value-store-of-the-whole-application",
        "secret_manager_of_the_whole_application_with_forty_letters",
        "fw_firewall_rules_of_the_whole_network_interface",
        "PWD=/home/me OLDPWD=/tmp; cd x",
        "http://localhost:8080/path@v2",
        "redis://r:6379/0?x=@y",
        "https://discord.com/api/webhooks/ is where",
        "import_module.__init__.a_function_of_the_test_suite_that_is_long",
    ],
)
def test_ordinary_words_stay(text: str) -> None:
    assert sanitise(text) == text


def test_json_values_are_cleaned_by_member_name_and_by_text() -> None:
    error = {
        "name": "APIError",
        "data": {
            "message": f"bad key={SECRET}",
            "statusCode": 401,
            "isRetryable": False,
            "responseHeaders": {"set-cookie": f"sid={SECRET}", "x-request-id": "req_1", "Authorization": SECRET},
            "responseBody": f'{{"error":{{"api_key":"{SECRET}"}}}}',
            "list": [f"token={SECRET}", None, 1.5],
            "token": None,
        },
    }
    clean = sanitise_value(error)
    assert SECRET not in str(clean)
    assert clean["data"]["statusCode"] == 401
    assert clean["data"]["isRetryable"] is False
    assert clean["data"]["responseHeaders"]["x-request-id"] == "req_1"
    assert clean["data"]["list"][1:] == [None, 1.5]
    assert clean["data"]["token"] is None
    assert sanitise_value(clean) == clean


def test_a_long_error_is_cut() -> None:
    clean = sanitise_value({"body": "x" * (MAX_ERROR_TEXT + 1)})
    assert clean["body"].endswith("… [cut]")
    assert len(clean["body"]) < MAX_ERROR_TEXT + 20


@given(st.text())
def test_cleaning_is_idempotent(text: str) -> None:
    clean = sanitise(text)
    assert sanitise(clean) == clean
    assert strip_terminal(strip_terminal(text)) == strip_terminal(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\x1b[31mred\x1b[0m b", "ared b"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]52;c;aGk=\nrest", "\nrest"),
        ("\x9b2Jx\x9d0;t\x07y", "xy"),
        ("over\rwrite\x08\x7f", "overwrite"),
        ("line\nnext\ttab", "line\nnext\ttab"),
        ("\u202egnp.exe", "gnp.exe"),
        ("bell\x07 nul\x00", "bell nul"),
        ("\x1bP+q\x1b\\ok \x1b(B \x1b", "ok  "),
        ("ünïcode ✓", "ünïcode ✓"),
    ],
)
def test_terminal_escapes_are_removed(text: str, expected: str) -> None:
    assert strip_terminal(text) == expected


@given(st.text())
def test_nothing_that_drives_a_terminal_is_left(text: str) -> None:
    clean = strip_terminal(text)
    assert all(char in "\n\t" or (char >= " " and not "\x7f" <= char <= "\x9f") for char in clean)
