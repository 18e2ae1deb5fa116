"""A run slowed by a cold disk: the report says so, and following its advice pays."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.truth.advice.followed import is_kept
from tests.truth.advice.slow_examples import example_followed
from tests.truth.host.surroundings import NotHereError, cold_file, must_read_from_a_device
from tests.truth.host.work import MIB


@pytest.mark.slow
@pytest.mark.measured
def test_follows_its_report_and_gains_what_was_promised(tmp_path: Path) -> None:
    try:
        with cold_file(tmp_path, MIB) as file:
            must_read_from_a_device(file, 0)
    except NotHereError as reason:
        pytest.skip(str(reason))

    assert is_kept(example_followed("slow_by_a_disk"))
