"""The frame of the project: make targets, package metadata, what must not be in any file."""

import re
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TARGETS = {"setup", "demo", "test", "test-live", "check", "agents", "bench", "soak", "help", "clean"}
MAX_LINES = 500

# In pieces, so that this file passes its own test.
REGISTRY_HOSTS = [
    "pypi" + ".org",
    "files.python" + "hosted.org",
    "npm" + "js.org",
    "npm" + "js.com",
    "yarn" + "pkg.com",
    "deb." + "debian.org",
]
MACHINE_PATHS = ["/work" + "/", "/tmp/" + "bash", "/root" + "/", "/opt/" + "pypi", "/opt/" + "wheels"]

FORBIDDEN = re.compile(
    "|".join(
        [re.escape(host) for host in REGISTRY_HOSTS] + [r"(?<![\w.-])" + re.escape(path) for path in MACHINE_PATHS]
    )
)


def project_files() -> list[Path]:
    """Files that are tracked, or would be after `git add`."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    paths = {ROOT / name for name in listed.stdout.split("\0") if name}
    return sorted(path for path in paths if path.is_file())


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def source_files() -> list[Path]:
    return [path for path in project_files() if path.is_relative_to(ROOT / "src") and path.suffix in {".py", ".sql"}]


def test_help_lists_every_target() -> None:
    shown = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    described = dict(line.split(maxsplit=1) for line in shown.splitlines())
    declared = re.search(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert declared is not None
    assert set(described) == set(declared[1].split()) == TARGETS


def test_installed_metadata_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    installed = metadata.metadata("turnlog")
    assert installed["Version"] == project["version"]
    assert installed["License-Expression"] == "MIT"
    assert installed["Requires-Python"] == ">=3.11"
    scripts = metadata.entry_points(group="console_scripts", name="turnlog")
    assert [script.value for script in scripts] == ["turnlog.__main__:main"]


def test_package_is_typed() -> None:
    assert (ROOT / "src/turnlog/py.typed").is_file()


def test_constraints_are_plain_pins() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line)] == []


def test_every_direct_dependency_is_pinned() -> None:
    def canonical(requirement: str) -> str:
        name = re.match(r"[A-Za-z0-9._-]+", requirement)
        assert name is not None
        return re.sub(r"[-_.]+", "-", name[0]).lower()

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = list(project["dependencies"])
    for extra in project["optional-dependencies"].values():
        wanted += extra
    pinned = {canonical(line) for line in (ROOT / "constraints.txt").read_text().splitlines()}
    assert {canonical(requirement) for requirement in wanted} - pinned == set()


def test_every_agent_is_pinned() -> None:
    lines = [line for line in (ROOT / "agents.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert lines
    assert [line for line in lines if not re.fullmatch(r"[a-z-]+ [@a-z/-]+ \d+\.\d+\.\d+", line)] == []


@pytest.mark.parametrize(
    "text",
    [
        "see https://" + REGISTRY_HOSTS[0] + "/simple",
        "cwd=" + MACHINE_PATHS[0] + "main",
        '"' + MACHINE_PATHS[1] + '_jobs"',
    ],
)
def test_forbidden_text_is_recognised(text: str) -> None:
    assert FORBIDDEN.search(text)


@pytest.mark.parametrize("text", ["frame" + "work/", "src" + MACHINE_PATHS[0] + "a.py", "/tmp/x"])
def test_innocent_text_is_not(text: str) -> None:
    assert not FORBIDDEN.search(text)


def test_no_file_names_a_registry_or_a_path_of_one_machine() -> None:
    found = [
        f"{relative(path)}:{number}: {match[0]}"
        for path in project_files()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1)
        if (match := FORBIDDEN.search(line))
    ]
    assert found == []


def test_source_files_stay_small() -> None:
    sizes = {relative(path): len(path.read_text(encoding="utf-8").splitlines()) for path in source_files()}
    assert {name: size for name, size in sizes.items() if size > MAX_LINES} == {}
