"""What `gpumon why` and `gpumon serve --stacks` find in training scripts without any tag."""

from __future__ import annotations

import pytest

from gpumon.sources.stacks.py_spy import find_py_spy
from tests.needs import in_make_truth, missing
from tests.truth.untagged.catalog import LOOPS
from tests.truth.untagged.measured import Measured, measured

SECONDS = 6.0
SOME = ("a plain generator", pytest.param("a reader of another program", marks=in_make_truth))
"""They need no framework, and pause often."""


@pytest.fixture(params=SOME)
def found(request: pytest.FixtureRequest) -> Measured:
    if find_py_spy() is None:
        missing("py-spy is not installed (pip install -e '.[stacks]')")
    return measured(LOOPS[request.param], SECONDS)


@pytest.mark.measured  # a busy machine leaves too few stack samples for an answer
class TestALoopWithoutTags:
    def test_is_explained_by_its_cause_or_function_and_by_no_other(self, found: Measured) -> None:
        assert found.why.answer in found.loop.answers, found.document
        assert (found.why.wrong, found.served.wrong) == ((), ()), found.document
