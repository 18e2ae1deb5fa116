"""The doctor's finding on stacks: whether ``gpumon why`` can read those of a training script."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import Final, NamedTuple

from gpumon.cli.doctor.findings import MACHINE, MISSING, Finding, finding_of
from gpumon.core.wording import label_text
from gpumon.sources.stacks.permission import (
    IN_CONTAINER,
    LOWER_SCOPE,
    NEEDS_NOTHING,
    SCOPE,
    has_capability,
    kernel_permits,
    ptrace_scope,
    sudo_line,
)
from gpumon.sources.stacks.py_spy import PySpy, find_py_spy
from gpumon.sources.system_clock import SystemClock

_KNOWN: Final = "0.4"
_INSTALL: Final = f"{sys.executable} -m pip install 'py-spy>=0.4,<0.5' (the extra [stacks])"
_found = partial(finding_of, MACHINE, "stacks")


class StackAccess(NamedTuple):
    """What decides whether stacks can be read.

    Attributes:
        version: Of py-spy; ``None``: it is not installed; empty: it does not run.
        scope: Yama's ``ptrace_scope``; ``None``: this kernel has none.
        is_privileged: Whether this process has CAP_SYS_PTRACE.
        is_possible: Whether the system lets a process read memory by the call that py-spy makes.
    """

    version: str | None
    scope: int | None = None
    is_privileged: bool = False
    is_possible: bool = True


def read_stack_access(proc: str = "/proc") -> StackAccess:
    """Read it for this process and this machine."""
    program = find_py_spy()
    version = None if program is None else PySpy(program, SystemClock()).version() or ""
    return StackAccess(
        version, ptrace_scope(proc), has_capability(proc), kernel_permits(os.getpid())
    )


def stack_finding(access: StackAccess, *, in_container: bool) -> Finding:
    """Whose stacks can be read, and what to do about the others."""
    if access.version is None:
        detail = "py-spy is not installed: gpumon why cannot show lines of code"
        return _found(detail, status=MISSING, fix=_INSTALL)
    if not access.version:
        return _found("py-spy does not run here", status=MISSING, fix=_INSTALL)
    which = f"py-spy {label_text(access.version)}"
    if not access.version.startswith(f"{_KNOWN}."):
        detail = f"{which}: gpumon knows what {_KNOWN} writes"
        return _found(detail, status=MISSING, fix=_INSTALL)
    if not access.is_possible:
        detail = f"{which}, but this system does not permit process_vm_readv"
        return _found(detail, status=MISSING, fix=IN_CONTAINER)
    if access.scope == 3:
        detail = f"{which}, but no process may read another one's stacks ({SCOPE} is 3)"
        return _found(detail, status=MISSING, fix=LOWER_SCOPE)
    if access.is_privileged:
        return _found(f"{which} can read those of all users")
    as_root = IN_CONTAINER if in_container else sudo_line("PID")
    if access.scope == 2:
        detail = f"{which}, but only root may read stacks ({SCOPE} is 2)"
        return _found(detail, status=MISSING, fix=as_root)
    if access.scope == 1:
        detail = f"{which}, but of processes that gpumon did not start only root may ({SCOPE} is 1)"
        return _found(detail, status=MISSING, fix=f"{as_root}; {NEEDS_NOTHING}")
    return _found(f"{which} can read those of this user; of others: {as_root}")
