"""The man page is that of the command line now."""

from __future__ import annotations

import os

from tests.needs import needed
from tests.programs import ran
from tests.tools.man_page import PAGE, man_page


class TestTheManPage:
    def test_is_current(self) -> None:
        if os.environ.get("GPUMON_UPDATE_GOLDEN"):
            PAGE.write_text(man_page(), encoding="utf-8")

        assert man_page() == PAGE.read_text(encoding="utf-8"), "run: make golden"

    def test_is_printed_without_a_warning(self) -> None:
        done = ran(
            needed("groff", "groff-base"), "-man", "-ww", "-Tutf8", "-rLL=100n", PAGE,
            environ={"GROFF_NO_SGR": "1"},
        )  # fmt: skip

        assert done.returncode == 0
        assert done.stderr == ""
        assert "gpumon report --fail-if-starved-above 5" in done.stdout
