"""What to do about GPUs that processes hold without using them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpumon.core.diagnosis import messages
from gpumon.core.report.report import HELD, Advice, GpuReport
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.wording import gpus_named, in_gibibytes, in_time, label_text

_MAX_NAMED: Final = 3
_MIN_SHOWN_BYTES: Final = (1 << 30) // 20
"""Less memory than that reads as 0.0 GiB."""


def held_advice(gpus: Sequence[GpuReport]) -> Advice | None:
    """The advice on GPUs that are held; ``None`` where there is none."""
    by_holder = holders(gpus)
    if not by_holder:
        return None
    held = [gpu for _, held_by_one in by_holder for gpu in held_by_one]
    return Advice(
        cause=HELD,
        lost_seconds=0.0,
        speedup_upper_bound=1.0,
        evidence=messages.HELD_EVIDENCE.of(
            len(held),
            gpus=gpus_named(gpu.label for gpu in held),
            time=in_time(DEFAULT_SETTINGS.held_after_ns),
        ),
        text=" ".join(_text(held_by_one) for _, held_by_one in by_holder[:_MAX_NAMED]),
        gpus=tuple(gpu.label for gpu in held),
    )


def holders(gpus: Sequence[GpuReport]) -> list[tuple[str, list[GpuReport]]]:
    """The name of each process that holds GPUs, and these GPUs."""
    by_pid: dict[int, list[GpuReport]] = {}
    for gpu in gpus:
        if gpu.held is not None:
            by_pid.setdefault(gpu.held.pid, []).append(gpu)
    found = []
    for pid, held in by_pid.items():
        holder = held[0].held
        assert holder is not None
        facts = [] if holder.command is None else [label_text(holder.command)]
        facts += [] if holder.user is None else [_user_named(holder.user)]
        named = f" ({', '.join(facts)})" if facts else ""
        found.append((f"Process {pid}{named}", held))
    return found


def memory_of(gpus: Sequence[GpuReport]) -> str:
    """The memory that the holder of these GPUs has on them; empty: unknown, or next to nothing."""
    amounts = [gpu.held.memory_bytes for gpu in gpus if gpu.held is not None]
    known = [amount for amount in amounts if amount is not None]
    is_known = len(known) == len(amounts) and sum(known) >= _MIN_SHOWN_BYTES
    return in_gibibytes(sum(known)) if is_known else ""


def _user_named(user: str) -> str:
    return f"user {user}" if user.isdecimal() else label_text(user)


def _text(gpus: Sequence[GpuReport]) -> str:
    holder, memory, names = gpus[0].held, memory_of(gpus), gpus_named(gpu.label for gpu in gpus)
    assert holder is not None
    ask = messages.HELD_FIND_OUT.format(pid=holder.pid)
    if holder.user is not None:
        ask = messages.HELD_ASK.format(user=_user_named(holder.user), pid=holder.pid)
    if memory:
        return f"{ask} {messages.HELD_FREES_MEMORY.format(memory=memory, gpus=names)}"
    is_alone = all(gpu.held is not None and gpu.held.process_count == 1 for gpu in gpus)
    return f"{ask} {messages.HELD_FREES.format(gpus=names)}" if is_alone else ask
