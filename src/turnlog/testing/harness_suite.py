"""Conformance suite of a harness: what every provider program must be shown as, told through the contract only.

A provider passes when the class of this module passes unchanged. Give it one test module like this::

    import pytest
    from turnlog.testing.harness_suite import HarnessSuite

    class TestMyProvider(HarnessSuite):
        @pytest.fixture
        def lab(self, tmp_path):
            return MyLab(tmp_path)

``MyLab`` implements ``Lab``: it makes harnesses and knows how to make their program play a scenario. The program is
the real one with a stand-in for its model (``turnlog.testing.stub_llm``), or a scripted peer. The scenarios:

    text        answers ANSWER, in one model call
    tool        makes the file ``lab.made`` by one shell command, then answers ANSWER; where the command is not allowed
                it is not run, and the answer comes all the same
    steps       two shell commands of a moment each, each in a model call of its own, then answers ANSWER
    error       fails at once, with words that hold ``Authorization: Bearer`` and SECRET
    loop        as steps, but for so many commands that it goes on until something is said into it
    slow        speaks for half a minute, until it ends by itself
    hang        says the beginning of ANSWER; the rest comes after ``release``
    structured  answers VALUE, as JSON, to SCHEMA

Providers differ; the suite asks the lab (``structured``, ``steerable``, ``adoptable``, ``asks``). A test is skipped
only where there is nothing to be seen: a real program needs no ``retell`` and no ``babble``; a scripted one has them
(``harness_suite_stage`` plays the scenarios; see ``tests/harness/test_suite_peers.py``).

The tests are run by anyio's pytest plugin, on asyncio. They wait for what they are about, never for time to pass; a
failing one waits up to 60 seconds. What must not be over when a test acts (``hang``, ``loop``) is held until then.
"""

from __future__ import annotations

# ruff: noqa: E402 - asserts are rewritten on import only where pytest was told so before
import pytest

# Before the modules are imported: only then do their bare asserts explain themselves.
pytest.register_assert_rewrite(
    *(f"turnlog.testing.harness_suite_{noun}" for noun in ("base", "turns", "control", "crashes"))
)

from turnlog.testing.harness_suite_base import ANSWER, SCHEMA, SECRET, VALUE, Lab
from turnlog.testing.harness_suite_control import ControlTests
from turnlog.testing.harness_suite_crashes import CrashTests
from turnlog.testing.harness_suite_turns import TurnTests

__all__ = ["ANSWER", "SCHEMA", "SECRET", "VALUE", "HarnessSuite", "Lab"]


@pytest.mark.anyio
class HarnessSuite(TurnTests, ControlTests, CrashTests):
    """All tests; subclass it with a fixture ``lab``."""
