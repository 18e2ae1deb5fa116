"""The device of each operation that TensorFlow ran.

Before a function first runs, TensorFlow places and optimizes its graph and partitions it by device:
those graphs are read here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from tensorflow.python.eager import context

COMPUTES = ("MatMul", "Conv2D")


class Operation(NamedTuple):
    """One operation on a device such as ``"CPU:1"``; the backward pass is a tape's gradient.

    Attributes:
        joined_by: How an operation that joins devices communicates: ``"ring"``, ``"nccl"``.
    """

    kind: str
    name: str
    device: str
    is_backward: bool
    joined_by: str


def operations_of(run: Callable[[], object]) -> list[Operation]:
    """All operations of the functions that ran for the first time during ``run``."""
    context.enable_run_metadata()
    try:
        run()
        graphs = context.export_run_metadata().partition_graphs
    finally:
        context.disable_run_metadata()
    return [_operation(node) for graph in graphs for node in graph.node]


def computing(operations: list[Operation]) -> dict[str, Counter[str]]:
    """The number of matrix products and convolutions per device, forward and backward."""
    found: dict[str, Counter[str]] = {}
    for one in operations:
        if any(kind in one.kind for kind in COMPUTES):
            way = "backward" if one.is_backward else "forward"
            found.setdefault(one.device, Counter())[way] += 1
    return found


def _operation(node: Any) -> Operation:
    device = node.device.rsplit("device:", 1)[-1]
    joined_by = node.attr["communication_hint"].s.decode()
    return Operation(node.op, node.name, device, "gradient_tape" in node.name, joined_by)
