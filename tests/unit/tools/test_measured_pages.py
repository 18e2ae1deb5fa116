"""The page that says what is assumed until a board was measured: it says what the fake does."""

from __future__ import annotations

import re

import pytest

from tests.fakenvml.control import FakeNvml
from tests.tools.run_gpu_tests import MEASURED

PAGE = (MEASURED / "README.md").read_text(encoding="utf-8")


def assumed(what: str) -> str:
    """The second column of the row that begins so."""
    (found,) = re.findall(rf"^\| {re.escape(what)} \| ([^|]+) \|", PAGE, re.MULTILINE)
    return str(found)


class TestWhatIsAssumed:
    @pytest.mark.parametrize(
        ("what", "field", "in_words"),
        [
            ("a utilisation sample every", "window_ns", {166_666_667: "1/6 s"}),
            ("utilisation samples kept", "ring_depth", {120: "120"}),
            ("a power sample every", "power_window_ns", {20_000_000: "20 ms"}),
            ("from a stamp to its sample", "publication_delay_ns", {0: "0 ms"}),
        ],
    )
    def test_is_what_the_fake_does(
        self, fake_nvml: FakeNvml, what: str, field: str, in_words: dict[int, str]
    ) -> None:
        assert in_words[getattr(fake_nvml.gpu(0), field)] == assumed(what)


class TestTheBoards:
    def test_with_a_page_are_all_in_the_list(self) -> None:
        pages = [path.name for path in MEASURED.glob("*.md") if path.stem != "README"]

        assert [name for name in pages if f"({name})" not in PAGE] == []
