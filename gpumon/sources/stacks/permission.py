"""Whether this process may read another one's stacks, and what to do if not.

The kernel decides: it is asked by the call that py-spy makes. Why it refuses is then explained
from ``/proc``.
"""

from __future__ import annotations

import ctypes
import errno
import os
import pwd
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.core.wording import label_text
from gpumon.sources.host.kept_files import KeptFiles
from gpumon.sources.host.process_tasks import parse_stat
from gpumon.sources.installed import container_words

OPT_OUT: Final = "GPUMON_NO_STACKS"
"""Set in the environment of a process, except to 0, it forbids to read its stacks."""
SCOPE: Final = "kernel.yama.ptrace_scope"
_SCOPE_FILE: Final = "sys/kernel/yama/ptrace_scope"
_MAX_ENVIRONMENT: Final = 4 << 20
_CAPABILITY_BIT: Final = 19  # CAP_SYS_PTRACE
_CAPABILITIES: Final = re.compile(rb"^CapEff:\t([0-9a-f]+)", re.MULTILINE)
_USERS: Final = re.compile(rb"^Uid:\t(\d+)\t(\d+)\t(\d+)", re.MULTILINE)
_KERNEL_THREAD: Final = 0x0020_0000  # PF_KTHREAD
_FLAGS_FIELD: Final = 6  # of stat, behind the name
IN_CONTAINER: Final = (
    "start the container with the capability: docker run --cap-add SYS_PTRACE, or in Kubernetes "
    'securityContext.capabilities.add: ["SYS_PTRACE"]'
)
LOWER_SCOPE: Final = f"set {SCOPE} to 1 in /etc/sysctl.d, and reboot"
NEEDS_NOTHING: Final = (
    "a script that `gpumon why -- COMMAND` or `gpumon run -- COMMAND` starts needs no permission"
)


class StackRefusal(NamedTuple):
    """Why stacks may not be read.

    Attributes:
        text: A sentence.
        remedy: What to do, a clause; ``None``: nothing helps.
        has_ended: Whether the process is gone, or has ended.
    """

    text: str
    remedy: str | None = None
    has_ended: bool = False


def kernel_permits(pid: int) -> bool:
    """Whether the kernel lets this process read the memory of that one."""
    library = ctypes.CDLL(None, use_errno=True)
    own = ctypes.create_string_buffer(1)
    here = (ctypes.c_size_t * 2)(ctypes.addressof(own), 1)
    there = (ctypes.c_size_t * 2)(8, 1)  # never mapped, so it reads nothing
    done = library.process_vm_readv(
        ctypes.c_int(pid), here, ctypes.c_ulong(1), there, ctypes.c_ulong(1), ctypes.c_ulong(0)
    )
    return bool(done >= 0 or ctypes.get_errno() == errno.EFAULT)


def refusal(
    pid: int, *, proc: str = "/proc", permits: Callable[[int], bool] = kernel_permits
) -> StackRefusal | None:
    """Why the stacks of ``pid`` may not be read; ``None``: they may. Never raises."""
    gone = _gone(pid, proc)
    if gone is not None:
        return gone
    if opts_out(pid, proc):
        return StackRefusal(f"process {pid} does not want its stacks read ({OPT_OUT} is set)")
    if permits(pid):
        return None
    if not permits(os.getpid()):
        text = "this system lets no process read another one's memory (process_vm_readv)"
        return StackRefusal(text, IN_CONTAINER)
    return _gone(pid, proc) or _explained(pid, proc)


def opts_out(pid: int, proc: str = "/proc") -> bool | None:
    """Whether a process was started with ``GPUMON_NO_STACKS``; ``None``: that is unknown.

    A program may overwrite the text that the kernel shows of its environment, which is unknown.
    """
    try:
        raw = KeptFiles.read_once(f"{proc}/{pid}/environ", _MAX_ENVIRONMENT)
    except OSError:
        return None
    name = OPT_OUT.encode()
    values = [entry.partition(b"=") for entry in raw.split(b"\0")]
    if any(key == name and value not in (b"", b"0") for key, _, value in values):
        return True
    is_whole = len(raw) < _MAX_ENVIRONMENT
    return False if is_whole and any(separator for _, separator, _ in values) else None


def ptrace_scope(proc: str = "/proc") -> int | None:
    """Yama's setting; ``None``: this kernel has none, so the usual rules hold alone."""
    try:
        return int(KeptFiles.read_once(f"{proc}/{_SCOPE_FILE}"))
    except (OSError, ValueError):
        return None


def has_capability(proc: str = "/proc") -> bool:
    """Whether this process has CAP_SYS_PTRACE."""
    try:
        found = _CAPABILITIES.search(KeptFiles.read_once(f"{proc}/self/status"))
    except OSError:
        return False
    return found is not None and bool(int(found[1], 16) >> _CAPABILITY_BIT & 1)


def sudo_line(pid: int | str) -> str:
    """The command that reads that process as root, with the whole path of our program."""
    program = Path(sys.executable).parent / "gpumon"
    ours = str(program) if os.access(program, os.X_OK) else f"{sys.executable} -m gpumon"
    return f"sudo {ours} why {pid}"


def owner_of(pid: int, proc: str = "/proc") -> int | None:
    """The effective user of a process; ``None``: it is gone, or hidden."""
    try:
        found = _USERS.search(KeptFiles.read_once(f"{proc}/{pid}/status"))
    except OSError:
        return None
    return None if found is None else int(found[2])


def _gone(pid: int, proc: str) -> StackRefusal | None:
    try:
        raw = KeptFiles.read_once(f"{proc}/{pid}/stat")
        state = parse_stat(raw).state
        flags = int(raw[raw.rindex(b")") + 1 :].split()[_FLAGS_FIELD])
    except (OSError, ValueError):
        return StackRefusal(f"there is no process {pid}, or it is hidden", has_ended=True)
    if state in ("Z", "X", "x"):
        text = f"process {pid} has ended, and its parent has not noticed yet (a zombie)"
        return StackRefusal(text, has_ended=True)
    if flags & _KERNEL_THREAD:
        return StackRefusal(f"process {pid} is a thread of the kernel, not a program")
    return None


def _explained(pid: int, proc: str, environ: Mapping[str, str] = os.environ) -> StackRefusal:
    scope = ptrace_scope(proc)
    if scope == 3:
        return StackRefusal(
            f"this machine lets no process read another one's stacks ({SCOPE} is 3)",
            LOWER_SCOPE,
        )
    if has_capability(proc):
        return StackRefusal(
            f"the kernel forbids to read process {pid}, even with CAP_SYS_PTRACE: it is in another "
            "user namespace, or a security module protects it"
        )
    place = container_words(environ, Path(proc).parent)
    if place is not None:
        text = f"this container may not read stacks of process {pid} ({place})"
        return StackRefusal(text, IN_CONTAINER)
    as_root = sudo_line(pid)
    owner = owner_of(pid, proc)
    if owner is not None and owner != os.geteuid() and os.geteuid() != 0:
        return StackRefusal(f"process {pid} belongs to {_user_name(owner)}", as_root)
    if os.geteuid() == 0:
        return StackRefusal(
            f"root may not read process {pid} here: the capability CAP_SYS_PTRACE is missing",
            "let this service keep it (CapabilityBoundingSet of systemd)",
        )
    if scope == 2:
        text = f"only root may read stacks on this machine ({SCOPE} is 2)"
        return StackRefusal(text, as_root)
    if scope == 1:
        return StackRefusal(
            "on this machine a process may only read stacks of processes that it started "
            f"({SCOPE} is 1)",
            f"{as_root}; {NEEDS_NOTHING}",
        )
    return StackRefusal(f"process {pid} forbids other processes to read it", as_root)


def _user_name(uid: int) -> str:
    try:
        return f"user {label_text(pwd.getpwuid(uid).pw_name)}"
    except KeyError:
        return f"user {uid}"
