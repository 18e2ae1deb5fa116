"""Where a framework has put the model that it trains: on the CPU, or elsewhere."""

from __future__ import annotations

import sys
from typing import Any, Final


def is_on_cpu(framework: str, model: object) -> bool:
    """Whether the training computes on the CPU for certain; in doubt, and on any error, no.

    Asked as a training begins, when its framework has made the model and initialised its devices;
    nothing is imported.

    Args:
        framework: ``"jax"``, ``"tensorflow"`` or ``"torch"``.
        model: What is trained; only torch is asked of it.
    """
    module = sys.modules.get(framework)
    if module is None:
        return False
    try:
        return _ASKS[framework](module, model)
    except Exception:  # noqa: BLE001 (another version, an odd model: nobody knows)
        return False


def _by_jax(jax: Any, _: object) -> bool:  # noqa: ANN401
    return bool(jax.default_backend() == "cpu")


def _by_tensorflow(tensorflow: Any, _: object) -> bool:  # noqa: ANN401
    devices = tensorflow.config.list_logical_devices()
    return bool(devices) and all(device.device_type == "CPU" for device in devices)


def _by_torch(torch: Any, model: Any) -> bool:  # noqa: ANN401
    # A model that is offloaded has its weights on the CPU, and computes on a GPU.
    where = {str(weight.device.type) for weight in model.parameters()}
    return where == {"cpu"} and not torch.cuda.is_initialized()


_ASKS: Final = {"jax": _by_jax, "tensorflow": _by_tensorflow, "torch": _by_torch}
