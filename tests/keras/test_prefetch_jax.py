"""``prefetch_to_device`` on JAX, in loops of one's own and in Keras."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import pytest

from tests.builders.prefetch import Source, most_ahead
from tests.imported_later import ImportedLater
from tests.keras.later import keras
from tests.keras.output_of_script import json_printed_by
from trainer_hooks.prefetch import prefetch_to_device

jax: Any = ImportedLater("jax")

pytestmark = pytest.mark.keras_jax


def rows(count: int) -> list[Any]:
    return [np.full((4, 2), number, "float32") for number in range(count)]


class TestBatches:
    def test_are_arrays_of_jax_in_the_same_order(self) -> None:
        found = list(prefetch_to_device(rows(6)))

        assert [float(batch[0, 0]) for batch in found] == [0, 1, 2, 3, 4, 5]
        assert all(isinstance(batch, jax.Array) for batch in found)

    def test_keep_their_structure_and_whatever_is_no_array(self) -> None:
        Pair = namedtuple("Pair", "rows name")
        batch = {"a": (rows(1)[0], [np.float32(2)]), "b": Pair(rows(1)[0], "a name"), "c": None}

        (found,) = prefetch_to_device([batch])

        assert jax.tree.structure(found) == jax.tree.structure(batch)
        assert (found["b"].name, found["c"]) == ("a name", None)
        assert isinstance(found["a"][1][0], jax.Array)

    def test_are_ahead_by_the_depth_and_never_by_more(self) -> None:
        source = Source(rows(8))

        assert most_ahead(prefetch_to_device(source, 3), lambda: source.pulled) == 3


@pytest.fixture(scope="module")
def recorded() -> Any:
    return json_printed_by(
        "tests.keras.prefetching_on_two_jax_devices",
        XLA_FLAGS="--xla_force_host_platform_device_count=2",
    )


class TestDevices:
    def test_are_where_the_arrays_land(self, recorded: Any) -> None:
        assert (recorded["default"], recorded["one"]) == (["0"], ["1"])

    def test_share_the_rows_of_a_batch_by_a_sharding(self, recorded: Any) -> None:
        assert recorded["spread"] == ["0+1"]
        assert recorded["a tree"] == ["0", "0+1"]

    def test_default_device_of_a_block_applies_in_the_thread(self, recorded: Any) -> None:
        assert recorded["block"] == ["1"]
        assert recorded["unbound"] == "0"

    def test_get_an_error_for_a_batch_that_does_not_suit_them(self, recorded: Any) -> None:
        assert recorded["uneven"] == ["(4, 2)", "ValueError"]
        assert recorded["threads"] == 1

    @pytest.mark.parametrize("device", ["GPU:0", "gpu", 0, [], {"rows": 3}])
    def test_devices_of_another_framework_are_refused(self, device: Any) -> None:
        with pytest.raises(TypeError, match="of JAX"):
            prefetch_to_device(rows(1), device=device)


class TestKerasOnJax:
    @pytest.mark.versions
    def test_is_given_what_it_spreads_itself_from_the_host(self) -> None:
        keras.distribution.set_distribution(keras.distribution.DataParallel(devices=["cpu:0"]))
        try:
            (batch,) = prefetch_to_device(rows(1))
        finally:
            keras.distribution.set_distribution(None)

        assert isinstance(batch, np.ndarray)
