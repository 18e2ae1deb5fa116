"""Counting GPUs beside a framework that is imported leaves it as it was: uninitialised."""

from __future__ import annotations

from tests.programs import ran_python

IS_INITIALISED = {
    "torch": "import torch\nasked = torch.cuda.is_initialized",
    "jax": (
        "import jax\nfrom jax._src import xla_bridge\nasked = xla_bridge.backends_are_initialized"
    ),
    "tensorflow": (
        "import tensorflow\nfrom tensorflow.python.eager import context\n"
        "asked = lambda: context.context()._initialized"
    ),
}
"""What each framework says of itself, as code that leaves a function called ``asked``."""


def test_nothing_is_initialised(each_backend: str) -> None:
    code = (
        f"{IS_INITIALISED[each_backend]}\n"
        "from trainer_hooks import devices\n"
        "before, count, after = asked(), devices.gpu_count(), asked()\n"
        "print(before, count >= 0, after)"
    )
    done = ran_python("-c", code, timeout_s=300)

    assert done.stdout.split()[-3:] == ["False", "True", "False"], done.stderr
