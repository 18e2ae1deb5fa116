"""Writes stacks for flame graphs: as speedscope reads them, or collapsed, a line a stack."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

from gpumon.core.stacks.sample_join import SampleKind
from gpumon.core.stacks.stack import StackFrame
from gpumon.core.stacks.stack_counts import CountedStack, StackCounts
from gpumon.core.wording import label_text
from gpumon.errors import UnwritableFileError, UsageError

_SCHEMA: Final = "https://www.speedscope.app/file-format-schema.json"
_COLLAPSED: Final = (".collapsed", ".txt")
_MODE: Final = 0o600
"""Names of files and functions are private."""
_NAMES: Final = {
    SampleKind.IDLE: "GPU idle",
    SampleKind.BUSY: "GPU busy",
    SampleKind.MIXED: "GPU both, in one window",
    SampleKind.UNOBSERVED: "GPU not observed",
}


class StackFile:
    """A file of stacks, created at once and written at the end.

    Raises:
        UsageError: There is such a file already.
        UnwritableFileError: It cannot be created.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            self._descriptor = os.open(self._path, flags, _MODE)
        except FileExistsError:
            raise UsageError(f"{path}: is there already: name another file") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise UnwritableFileError(f"{path}: cannot be written: {reason}") from error

    def write(self, counts: StackCounts, title: str) -> None:
        """Write all stacks, and close the file.

        Raises:
            UnwritableFileError: The disk is full; then nothing of the file stays.
        """
        is_collapsed = self._path.name.endswith(_COLLAPSED)
        body = collapsed(counts) if is_collapsed else speedscope(counts, title)
        try:
            with os.fdopen(self._descriptor, "wb") as file:
                file.write(body.encode("utf-8", "replace"))
        except OSError as error:
            self._path.unlink(missing_ok=True)
            raise UnwritableFileError(
                f"{self._path}: cannot be written: {error.strerror}"
            ) from error

    def discard(self) -> None:
        """Remove the empty file."""
        os.close(self._descriptor)
        self._path.unlink(missing_ok=True)


def collapsed(counts: StackCounts) -> str:
    """One line a stack: its frames from the outermost, and how often it was seen."""
    lines = [
        f"{';'.join(map(_without_separator, _names(stack)))} {count}"
        for stack, count in counts.items()
    ]
    return "".join(f"{line}\n" for line in lines)


def speedscope(counts: StackCounts, title: str) -> str:
    """A document of https://www.speedscope.app: one profile while the GPU was idle, one busy."""
    numbers: dict[StackFrame, int] = {}
    profiles = []
    for kind, name in _NAMES.items():
        stacks = [(stack, count) for stack, count in counts.items() if stack.kind is kind]
        if not stacks:
            continue
        samples = [
            [numbers.setdefault(frame, len(numbers)) for frame in _frames(stack)]
            for stack, _ in stacks
        ]
        weights = [count for _, count in stacks]
        profiles.append(
            {
                "type": "sampled", "name": name, "unit": "none", "startValue": 0,
                "endValue": sum(weights), "samples": samples, "weights": weights,
            }
        )  # fmt: skip
    document = {
        "$schema": _SCHEMA,
        "name": label_text(title),
        "exporter": "gpumon why",
        "activeProfileIndex": 0,
        "shared": {"frames": [_described(frame) for frame in numbers]},
        "profiles": profiles,
    }
    return json.dumps(document)


def _frames(stack: CountedStack) -> tuple[StackFrame, ...]:
    """Its process and thread, then its calls."""
    above = [StackFrame(name, "") for name in (stack.program, stack.thread) if name]
    return (*above, *stack.frames)


def _names(stack: CountedStack) -> list[str]:
    return [_NAMES[stack.kind], *(_name(frame) for frame in _frames(stack))]


def _name(frame: StackFrame) -> str:
    name = label_text(frame.function)
    if not frame.path:
        return name
    line = "" if frame.line is None else f":{frame.line}"
    return f"{name} ({label_text(frame.path)}{line})"


def _without_separator(name: str) -> str:
    return name.replace(";", ",")


def _described(frame: StackFrame) -> dict[str, Any]:
    described: dict[str, Any] = {"name": label_text(frame.function)}
    if frame.path:
        described["file"] = label_text(frame.path, 1_024)
    if frame.line is not None:
        described["line"] = frame.line
    return described
