"""Process identity: (boot id, pid, start time), never a pid alone (architecture §4).

The boot id is ``<machine>:<boot>:<pid namespace>``: pids mean something only inside one namespace of one boot. Of a
process of an earlier boot of the same machine we know that it is dead; of one in another namespace or on another
machine we know nothing. Unknown liveness is not "dead".

``TURNLOG_MACHINE`` names this machine where its own id does not: in containers without one, and in copies of one
virtual machine, which all have the same.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import time
from contextlib import suppress
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

import msgspec

START_TOLERANCE_MS = 3000
"""Two start times this close name the same process (R9.13): kernels round them differently after a clock step."""


MACHINE_VARIABLE = "TURNLOG_MACHINE"


class Liveness(StrEnum):
    """What is known about a process now."""

    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"


class ProcessIdentity(msgspec.Struct, frozen=True):
    """One process of one boot of one machine. ``started_at`` is unix milliseconds."""

    boot_id: str | None
    pid: int
    started_at: int


@lru_cache(maxsize=1)
def boot_id() -> str | None:
    """Return the id of the running boot and pid namespace, or None where the platform tells none."""
    if sys.platform == "darwin":
        import psutil

        return f"{_machine()}:{int(psutil.boot_time())}:"
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{_machine()}:{boot}:{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return None


def _machine() -> str:
    """Return the machine's given name, or a digest of its id; empty without both (then only equal boots compare)."""
    given = re.sub(r"[^A-Za-z0-9._-]", "-", os.environ.get(MACHINE_VARIABLE, ""))[:64]
    if given:
        return given
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        with suppress(OSError):
            text = Path(path).read_text(encoding="ascii").strip()
            if text:
                return hashlib.sha256(text.encode()).hexdigest()[:16]
    return ""


def machine_of(recorded_boot: str | None) -> str | None:
    """Return the machine that a boot id names; None when it names none."""
    return (recorded_boot or "").partition(":")[0] or None


def same_machine(recorded_boot: str | None) -> bool:
    """Tell whether a recorded boot is known to be one of this machine: what it left on disk is here."""
    here = boot_id()
    if recorded_boot is None or here is None:
        return False
    return recorded_boot == here or (machine_of(here) is not None and machine_of(recorded_boot) == machine_of(here))


def uptime_ms() -> int:
    """Return the milliseconds since this machine booted, time asleep included; no clock change moves it."""
    if sys.platform == "darwin":
        import psutil

        return int((time.time() - psutil.boot_time()) * 1000)
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def identify(pid: int | None = None) -> ProcessIdentity | None:
    """Return the identity of a running process (default: this one); None when there is no such process."""
    import psutil  # takes longer to load than most commands take; few ask for processes

    number = os.getpid() if pid is None else pid
    try:
        return ProcessIdentity(boot_id(), number, int(psutil.Process(number).create_time() * 1000))
    except (psutil.Error, ValueError):
        return None


def liveness(recorded_boot: str | None, pid: int | None, started_at: int | None) -> Liveness:
    """Tell whether a recorded process still runs here.

    Without pid or start time, or when the recorded boot cannot be compared with ours, the answer is UNKNOWN.
    """
    here = boot_id()
    if pid is None or started_at is None or recorded_boot is None or here is None:
        return Liveness.UNKNOWN
    if recorded_boot != here:
        return Liveness.DEAD if _earlier_boot(recorded_boot, here) else Liveness.UNKNOWN
    import psutil

    try:
        running = psutil.Process(pid)
        if abs(int(running.create_time() * 1000) - started_at) > START_TOLERANCE_MS:
            return Liveness.DEAD
        return Liveness.DEAD if running.status() == psutil.STATUS_ZOMBIE else Liveness.ALIVE
    except psutil.NoSuchProcess:
        return Liveness.DEAD
    except psutil.Error:
        return Liveness.UNKNOWN


def _earlier_boot(recorded: str, here: str) -> bool:
    """Tell whether both are boots of one known machine, and different ones: a machine runs one boot at a time."""
    old, now = recorded.split(":"), here.split(":")
    return len(old) >= 2 and bool(old[0]) and old[0] == now[0] and old[1] != now[1]  # noqa: PLR2004
