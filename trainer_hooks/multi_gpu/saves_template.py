"""Saving a parallel model: what is stored is the model it was made of, for one device."""

from __future__ import annotations

from typing import Final

import keras

from trainer_hooks.multi_gpu.batch_split import Setting
from trainer_hooks.multi_gpu.shared_weights import state_of

_COMPILED: Final = (
    "compiled", "optimizer", "loss", "_compile_config", "_compile_loss", "_compile_metrics",
    "_loss_tracker",
)  # fmt: skip
"""What ``compile`` leaves on a model and ``save`` looks for there."""


class SavesTemplate:
    """A base beside ``keras.Model``, in front of it.

    Attributes:
        template: The model for one device, which has the weights.
    """

    template: keras.Model
    compiled: bool
    optimizer: Setting

    def save(self, filepath: Setting, *words: Setting, **named: Setting) -> None:
        """Save the template: a model for one device.

        It is compiled as this one is and has the state of the optimizer, so that what is
        loaded can be trained further.
        """
        self._template_to_save().save(filepath, *words, **named)

    def save_weights(self, filepath: Setting, *words: Setting, **named: Setting) -> None:
        """Save the weights of the template, and the state of the optimizer."""
        self._template_to_save().save_weights(filepath, *words, **named)

    def load_weights(self, filepath: Setting, *words: Setting, **named: Setting) -> None:
        """Load weights that this model or the template saved; what cannot be loaded changes none.

        Raises:
            Exception: Whatever Keras raises of a file that does not fit.
        """
        state = [*state_of(self.template), *(self.optimizer.variables if self.compiled else ())]
        before = [keras.ops.convert_to_numpy(variable) for variable in state]
        try:
            self._template_to_save().load_weights(filepath, *words, **named)
        except Exception:
            for variable, value in zip(state, before, strict=True):
                variable.assign(value)
            raise

    def export(self, filepath: Setting, *words: Setting, **named: Setting) -> Setting:
        """Export the template."""
        return self.template.export(filepath, *words, **named)

    def summary(self, *words: Setting, **named: Setting) -> Setting:
        """Of the template: what every device computes."""
        return self.template.summary(*words, **named)

    def get_config(self) -> dict[str, object]:
        """There is none.

        Raises:
            ValueError: Always, with what to do instead.
        """
        raise ValueError(
            "a parallel model is not saved as such, because its GPUs may not be there when it is "
            "loaded; model.save(...) stores the single-device model with the trained weights, and "
            "serialize(model) returns it"
        )

    def get_compile_config(self) -> Setting:
        """As Keras does, for one device: there XLA may be used again."""
        config = super().get_compile_config()  # type: ignore[misc]
        return {**config, "jit_compile": "auto"} if config else config

    def _template_to_save(self) -> keras.Model:
        """The template, compiled as this model is and with its optimizer; its own is not touched.

        Its layers are the template's, and so are its weights.
        """
        if not self.compiled:
            return self.template
        stored = object.__new__(type(self.template))
        stored.__dict__.update(self.template.__dict__)
        stored.__dict__.update({name: getattr(self, name, None) for name in _COMPILED})
        stored.__dict__["get_compile_config"] = self.get_compile_config
        return stored
