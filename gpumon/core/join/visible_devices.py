"""Which GPUs a name means: in ``$CUDA_VISIBLE_DEVICES``, by CUDA's rules, and as users write it.

Without CUDA. The daemon, the hooks and ``trainer_hooks.devices`` all ask here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, NamedTuple

from gpumon.core.wording import label_text, listed

_LEADING_NUMBER: Final = re.compile(r"\+?0*([0-9]{1,9})")
_MOST_NAMES: Final = 1_024
WHAT_TO_SET: Final = "GPUMON_GPUS=0 in its environment, or gpus=[0] in its tagger"
_MOST_SAID: Final = 4
_MOST_LENGTH: Final = 48


class MigPart(NamedTuple):
    """A compute instance: what CUDA counts as a device on a GPU that is cut by MIG.

    Attributes:
        uuid: ``MIG-...``; ``None`` if the driver does not say.
        gpu_instance: Number of its GPU instance.
        compute_instance: Its number in that.
    """

    uuid: str | None
    gpu_instance: int | None = None
    compute_instance: int | None = None


class Board(NamedTuple):
    """One GPU of the machine.

    Attributes:
        uuid: ``GPU-...``; ``None`` if the driver does not say.
        is_cut: Whether MIG is on: then only its parts can be used.
        parts: Those, in the driver's order.
    """

    uuid: str | None
    is_cut: bool = False
    parts: tuple[MigPart, ...] = ()


class Choice(NamedTuple):
    """One device that a process may use: positions in what was asked about.

    Attributes:
        board: Which board.
        part: Which of its parts; ``None``: the whole board.
    """

    board: int
    part: int | None = None


def visible_choices(visible: str | None, boards: Sequence[Board]) -> tuple[Choice, ...]:
    """The devices of a process, in CUDA's numbering.

    The list ends before the first name that fits nothing, or more than one
    device, or is of another kind than the first; a device that is named twice
    leaves none. A GPU that is cut by MIG stands for its first part, and where
    there is a part it is the only device: CUDA gives a process one part, and
    no whole GPU beside it.

    >>> boards = (Board("GPU-8932f937"), Board("GPU-18ef14e9"))
    >>> visible_choices("1,-1,0", boards)
    (Choice(board=1, part=None),)
    >>> visible_choices("GPU-8932", boards)
    (Choice(board=0, part=None),)

    Args:
        visible: ``$CUDA_VISIBLE_DEVICES``; ``None`` where it is unset.
        boards: In the order of CUDA's numbers.
    """
    if visible is None:
        chosen = [_first_of(position, board) for position, board in enumerate(boards)]
    else:
        names = [name.strip() for name in visible.split(",", _MOST_NAMES)[:_MOST_NAMES]]
        chosen = _named(names, boards)
    usable = [one for one in chosen if one.part is not None or not boards[one.board].is_cut]
    parts = [one for one in usable if one.part is not None]
    return tuple(parts[:1] or usable)


def _named(names: Sequence[str], boards: Sequence[Board]) -> list[Choice]:
    """What the names stand for, up to the first that stands for nothing."""
    find = _finder(names[0])
    chosen: list[Choice] = []
    for name in names:
        one = find(name, boards)
        if one is None:
            break
        if one in chosen:
            return []
        chosen.append(one)
    return chosen


def _finder(first: str) -> Callable[[str, Sequence[Board]], Choice | None]:
    if first.startswith("MIG-"):
        return _by_part
    return _by_uuid if first.startswith("GPU-") else _by_number


def _first_of(position: int, board: Board) -> Choice:
    return Choice(position, 0 if board.is_cut and board.parts else None)


def _by_number(name: str, boards: Sequence[Board]) -> Choice | None:
    number = _LEADING_NUMBER.match(name)  # as C reads it: "1gpu" is 1
    position = -1 if number is None else int(number[1])
    return _first_of(position, boards[position]) if 0 <= position < len(boards) else None


def _by_uuid(name: str, boards: Sequence[Board]) -> Choice | None:
    """The one board whose UUID begins like that; ``GPU-`` alone is none (seen on an H100)."""
    if not name.startswith("GPU-") or name == "GPU-":
        return None
    fitting = [at for at, board in enumerate(boards) if (board.uuid or "").startswith(name)]
    return _first_of(fitting[0], boards[fitting[0]]) if len(fitting) == 1 else None


def _by_part(name: str, boards: Sequence[Board]) -> Choice | None:
    """The one part of that name: ``MIG-<uuid>``, or ``MIG-GPU-<uuid>/<instance>/<instance>``."""
    if not name.startswith("MIG-") or name == "MIG-":
        return None
    fitting = [
        Choice(at, position)
        for at, board in enumerate(boards)
        for position, part in enumerate(board.parts)
        if (part.uuid or "").startswith(name) or _old_name(board, part) == name
    ]
    return fitting[0] if len(fitting) == 1 else None


def _old_name(board: Board, part: MigPart) -> str:
    """What drivers before 470 call the part."""
    return f"MIG-{board.uuid}/{part.gpu_instance}/{part.compute_instance}"


class GpuName(NamedTuple):
    """What a GPU, or a MIG instance, answers to.

    Attributes:
        label: Its number: ``"0"``, and ``"0:1"`` for a MIG instance.
        uuid: ``GPU-...`` or ``MIG-...``.
    """

    label: str
    uuid: str

    def is_meant_by(self, name: str) -> bool:
        """Whether a user's name is that number, or the beginning of that UUID.

        >>> GpuName("0", "GPU-8f1c").is_meant_by("GPU-8"), GpuName("0", "1f").is_meant_by("1")
        (True, False)
        """
        if name == self.label:
            return True
        return bool(name) and not name.isdigit() and self.uuid.startswith(name)


def doubt_of_names(names: Iterable[str] | None, gpus: Collection[GpuName]) -> str | None:
    """What is wrong with the names that a training gave for its GPUs, to be said after its own.

    >>> doubt_of_names(["0", "99"], [GpuName(str(index), "") for index in range(8)])
    'names GPU 99, and there are GPU 0 to 7: set GPUMON_GPUS, or gpus=[...] in its tagger, to those'

    Args:
        names: As the user wrote them; ``None``: there are none, and nothing is wrong.
        gpus: All that there are, one at least.

    Returns:
        ``None`` where each is the name of one.
    """
    if names is None:
        return None
    names = [name.strip() for name in names]
    strange = [name for name in names if not any(gpu.is_meant_by(name) for gpu in gpus)]
    if names and not strange:
        return None
    said = listed([_said(name) for name in strange], most=_MOST_SAID) if names else "no GPU"
    return (
        f"names {said}, and {_there_are(gpus)}: set GPUMON_GPUS, or gpus=[...] in its tagger, "
        f"to {'those' if len(gpus) > 1 else 'that'}"
    )


def doubt_of_work(
    names: Collection[str] | None, gpus: Collection[GpuName], *, simulated: bool, pid: int
) -> str:
    """Why a training may have been seen at work on no GPU, and what to set.

    To be said after its name.

    Args:
        names: As in ``doubt_of_names``.
        gpus: All that are watched, one at least.
        simulated: Whether they are made up.
        pid: Its process id, as the daemon sees it.
    """
    wrong = doubt_of_names(names, gpus)
    if wrong is not None:
        return wrong
    if names is not None:
        said = listed([_said(name.strip()) for name in names], most=_MOST_SAID)
        return f"names {said}, and was not seen at work there"
    if simulated:
        return (
            "is joined to no GPU, for the daemon watches simulated ones, and no process is on "
            f"those: set {WHAT_TO_SET}"
        )
    return (
        f"was seen at work on no GPU, for the driver lists its pid {pid} on none: if it uses one "
        f"(in a container, say), set {WHAT_TO_SET}"
    )


def _said(name: str) -> str:
    shown = label_text(name, _MOST_LENGTH)
    return f"GPU {shown}" if shown[:1].isdigit() else repr(shown)


def _there_are(gpus: Collection[GpuName]) -> str:
    labels = [gpu.label for gpu in gpus]
    if len(labels) == 1:
        return f"there is GPU {labels[0]} alone"
    if len(labels) > 2 and labels == [str(index) for index in range(len(labels))]:
        return f"there are GPU 0 to {len(labels) - 1}"
    return f"there are {listed([f'GPU {label}' for label in labels], most=_MOST_SAID)}"
