"""Tests of the kernel evidence that a machine offers."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.sources.host.readable_evidence import HostVisibility, read_host_visibility

OPEN = {
    "self/schedstat": "81672 1204 7",
    "self/task/1/wchan": "0",
    "self/task/2/wchan": "futex_do_wait",
    "self/task/1/children": "",
    "pressure/memory": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0",
    "1/stat": "1 (init) S 0",
    "1/io": "read_bytes: 0",
}
"""A machine that shows everything."""


def seen(folder: Path, **changes: str | None) -> HostVisibility:
    """Read a machine with these files changed, or missing if ``None``."""
    for name, text in {**OPEN, **changes}.items():
        if text is not None:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
    return read_host_visibility(str(folder))


class TestVisibility:
    def test_is_complete_if_the_kernel_shows_all(self, tmp_path: Path) -> None:
        assert seen(tmp_path) == HostVisibility()

    @pytest.mark.parametrize(
        ("name", "text", "lost"),
        [
            ("self/schedstat", None, "counts_cores"),
            ("self/schedstat", "0 0 0", "counts_cores"),
            ("self/task/2/wchan", "0", "names_sleep"),
            ("self/task/1/children", None, "names_children"),
            ("pressure/memory", None, "counts_memory_stalls"),
            ("1/stat", None, "shows_others"),
            ("1/io", None, "opens_others"),
        ],
    )
    def test_lacks_what_the_kernel_does_not_show(
        self, tmp_path: Path, name: str, text: str | None, lost: str
    ) -> None:
        assert seen(tmp_path, **{name: text}) == HostVisibility()._replace(**{lost: False})

    def test_is_nothing_without_proc(self, tmp_path: Path) -> None:
        assert not any(read_host_visibility(str(tmp_path)))
