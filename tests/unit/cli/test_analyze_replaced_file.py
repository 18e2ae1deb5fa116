"""Specification of a followed file that another one replaces: whether the new one is read on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from gpumon.cli.analyze import readable_lines
from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.log_text import LogText
from tests.builders.logs import DMON, HEADER, NO_OPTIONS, smi_log, smi_stamp


class Replaced:
    """A followed log, one file after another."""

    name = "gpu.csv"

    def __init__(self, *files: str) -> None:
        self._files = files
        self.new_files = 0
        self.damage: UnreadableLogError | None = None

    def available_lines(self) -> Iterator[str]:
        for number, file in enumerate(self._files):
            self.new_files = number
            yield from file.splitlines(keepends=True)


def read_on(*files: str) -> tuple[int, str | None]:
    """How many lines are read, and why no more."""
    text = Replaced(*files)
    count = sum(1 for _ in readable_lines(cast("LogText", text), NO_OPTIONS))
    return count, None if text.damage is None else str(text.damage)


FIRST = smi_log([97] * 30)
LINES = FIRST.count("\n")
LATER = "".join(f"{smi_stamp(at)}, 0, NVIDIA A40, 97 %, 1830 MiB\n" for at in range(40, 70))
LATER_WIDE = "".join(f"{smi_stamp(at)},97,45\n" for at in range(40, 70))
WIDE = "".join(f"{smi_stamp(at)},97,45\n" for at in range(30))
OF_USE = {
    "with the same header": (FIRST, HEADER + "\n" + LATER),
    "without a header": (FIRST, LATER),
    "with its header alone so far": (FIRST, HEADER + "\n"),
    "whose first line was cut": (FIRST, "45 %, 1830 MiB\n" + LATER),
    "with other columns, which its header names": (
        FIRST,
        "index, utilization.gpu [%], timestamp\n"
        + "".join(f"0, 97 %, {smi_stamp(at)}\n" for at in range(40, 70)),
    ),
    "of another tool in the same format": ("\n".join(DMON * 9) + "\n", "\n".join(DMON) + "\n"),
    "after another": (FIRST, LATER, LATER),
}
OF_NO_USE = {
    "with other columns and another separator": (
        FIRST, "time;gpu_util\n" + "2026-03-02 09:00:00;97\n" * 60
    ),
    "of no utilisation": (
        FIRST, "timestamp, power.draw [W]\n" + f"{smi_stamp(50)}, 97.20 W\n" * 60
    ),
    "of another format": (FIRST, "\n".join(DMON * 9) + "\n"),
    "of another format than a table": ("\n".join(DMON * 9) + "\n", FIRST),
    "of text": (FIRST, "epoch 3: loss 0.31\n" * 60),
    "that ends soon": (FIRST, "time;gpu_util\n2026-03-02 09:00:00;97\n"),
    "with columns of the same number": (
        "time,gpu0,gpu1\n" + WIDE, "time,gpu1,gpu0\n" + LATER_WIDE
    ),
    "after one that is of use": (FIRST, LATER, "time;gpu_util\n" + "1;97\n" * 60),
}  # fmt: skip


@pytest.mark.parametrize("files", OF_USE.values(), ids=OF_USE)
def test_a_new_file_is_read_on(files: tuple[str, ...]) -> None:
    assert read_on(*files) == ("".join(files).count("\n"), None)


@pytest.mark.parametrize("files", OF_NO_USE.values(), ids=OF_NO_USE)
def test_a_new_file_is_not_read_on(files: tuple[str, ...]) -> None:
    lines, damage = read_on(*files)

    assert lines < "".join(files[:-1]).count("\n") + 20
    assert damage is not None
    assert damage.startswith(
        "gpu.csv: was replaced by a file that the reader of the first one cannot use (it begins "
        f"with '{files[-1].splitlines()[0][:50]}"
    )
