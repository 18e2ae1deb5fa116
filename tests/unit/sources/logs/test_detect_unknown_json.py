"""Specification of JSON that no format knows."""

from __future__ import annotations

import pytest

from gpumon.errors import UnreadableLogError
from tests.builders_logs import read_log


class TestJsonOfAnotherTool:
    @pytest.mark.parametrize(
        ("text", "found"),
        [
            ('{"loss": 0.3, "lr": 1}\n', "tells loss, lr, and no utilisation"),
            ('{\n    "gpus": []\n}\n', "has `gpus` and no `query_time`"),
            ('[{"step": 1}]\n', "tells step, and"),
            ("[1, 2, 3]\n", "holds no complete object"),
            ('{"loss": ', "holds no complete object"),
            ('\n\n{"a": {"b": [1, 2]}}', "tells a, and"),
        ],
    )
    def test_is_refused_with_what_was_found_and_what_is_needed(self, text: str, found: str) -> None:
        with pytest.raises(UnreadableLogError) as refused:
            read_log(text, name="x.json")

        assert found in str(refused.value)
        assert "gpustat --json" in str(refused.value)
        assert "\n" not in str(refused.value)
