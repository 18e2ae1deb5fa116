"""Damaged views of a daemon: a screen of lines that fit, or one sentence."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

from rich.cells import cell_len

from gpumon.core.codecs.view_codec import decode_view, encode_view
from gpumon.errors import UsageError
from gpumon.outlets.screen.details import Details
from gpumon.outlets.screen.ink import Ink
from gpumon.outlets.screen.one_screen import Screenful, head_lines, one_screen
from gpumon.outlets.screen.order import SORT_ORDERS, shown_gpus
from gpumon.outlets.text.style import TextStyle
from tests.builders.view import gpu_view, held, lost, run_view, starved, view
from tests.fuzz.fuzzing import Case, Fuzz, for_seconds_and_minutes, fuzz_here
from tests.fuzz.mutations import with_other_value
from tests.waiting import no_hang

_CI_SECONDS = 2.0
_MOST_GROWTH_KIB = 16_384
_WIDTHS = (1, 20, 80, 131)
_VIEW = view(
    lost("9"), starved("3"), held("12"), gpu_view("0"), runs=(run_view(),), notes=("A note.",)
)


class TestAView:
    @for_seconds_and_minutes(_CI_SECONDS)
    def test_gives_lines_or_a_sentence(self, tmp_path: Path, seconds: float) -> None:
        draw = partial(screen, encode_view(_VIEW))
        fuzz_here(Fuzz(tmp_path, seconds), draw, most_kib=_MOST_GROWTH_KIB)


def screen(document: dict[str, Any], case: Case) -> None:
    random = case.random
    damaged: Any = document
    for _ in range(random.choice((1, 2, 5))):
        damaged = with_other_value(random, damaged)
    case.tries(json.dumps(damaged).encode())
    width, style = random.choice(_WIDTHS), TextStyle(random.random() < 0.5, random.random() < 0.5)
    ink = Ink(style)
    with no_hang():
        try:
            found = decode_view(damaged)
        except UsageError as error:
            assert str(error).isprintable()  # noqa: PT017  (most cases have no error)
            return
        shown = Screenful(found, "daemon")
        lines = [*one_screen(shown, width, ink), *head_lines(shown, width, ink, most=1)]
        for order in SORT_ORDERS:
            for gpu in shown_gpus(found.gpus, order, "gpu"):
                lines += Details(found, width, ink).lines(gpu, ())
        assert all(line.plain.isprintable() and cell_len(line.plain) <= width for line in lines)
