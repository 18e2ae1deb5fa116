"""Specification: which GPUs are shown, and in which order."""

from __future__ import annotations

import pytest

from gpumon.outlets.screen.order import SORT_ORDERS, shown_gpus
from tests.builders.view import gpu_view, held, lost, starved

GPUS = (lost("9"), starved("3"), held("12"), gpu_view("10", user=None), gpu_view("2"))
ORDERS = {order.name: order for order in SORT_ORDERS}


def labels(order: str = "need", words: str = "") -> list[str]:
    return [gpu.label for gpu in shown_gpus(GPUS, ORDERS[order], words)]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("need", ["9", "3", "12", "10", "2"]),
        ("number", ["2", "3", "9", "10", "12"]),
        ("busy", ["10", "2", "3", "12", "9"]),
        ("lost", ["3", "10", "2", "9", "12"]),
        ("memory", ["3", "10", "2", "12", "9"]),
        ("power", ["10", "2", "3", "12", "9"]),
        ("user", ["3", "2", "12", "9", "10"]),
    ],
)
def test_an_order(order: str, expected: list[str]) -> None:
    assert labels(order) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("bob", ["12"]),
        ("BOB held", ["12"]),
        ("disk", ["3"]),
        ("gpu 12", ["12"]),
        ("815", ["12"]),
        ("ipykernel", ["12"]),
        ("train", ["3", "10", "2"]),
        ("nothing", []),
    ],
)
def test_all_words_must_be_there(words: str, expected: list[str]) -> None:
    assert labels(words=words) == expected
