"""Weighs a rank's gradients where the trainer calls ``backward`` itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class GradientWeights:
    """Multiplies each gradient of a model by ``weight`` before it is accumulated or averaged.

    That is the gradient of a weighed loss, and the loss itself stays as the trainer logs it.

    Args:
        model: Whose parameters are trained, in ``DistributedDataParallel`` or not.

    Attributes:
        weight: 1.0 leaves gradients as they are.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.weight = 1.0
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._hooks = [parameter.register_hook(self._weighed) for parameter in trained]

    def remove(self) -> None:
        """Leave the gradients alone from now on."""
        while self._hooks:
            self._hooks.pop().remove()

    def _weighed(self, gradient: torch.Tensor) -> torch.Tensor | None:
        return None if self.weight == 1.0 else gradient * self.weight
