"""The template of a parallel model holds what was trained, and is what gets saved."""

from __future__ import annotations

import keras

from trainer_hooks.multi_gpu.scoped_optimizer import made_again
from trainer_hooks.multi_gpu.template_copy import carry, carry_adapted, differ
from trainer_hooks.multi_gpu.tensors import Setting
from trainer_hooks.ring.gpu_shares import tell_shares_of


class Template:
    """The user's own model, and whether the replicas are ahead of it."""

    def __init__(self, model: keras.Model) -> None:
        self.model = model
        self.is_behind = False
        self.compiled_with: dict[str, Setting] = {}
        self._compiled_here = False

    def forget_compiled(self, compiled_with: dict[str, Setting]) -> None:
        """The parallel model was compiled anew: what the template has of it is outdated.

        Args:
            compiled_with: What ``compile`` was told of losses and metrics.
        """
        self.compiled_with = compiled_with
        if self._compiled_here:
            self.model.compiled = False
            self._compiled_here = False

    def compile_like(self, parallel: keras.Model) -> None:
        """Compile it as ``parallel`` is, unless its owner compiled it otherwise or nobody can."""
        if self.model.compiled or not parallel.compiled:
            return
        try:
            config = parallel.get_compile_config()
            self.model.compile_from_config({**config, "jit_compile": "auto"})
        except (AttributeError, NotImplementedError, TypeError, ValueError):
            # There is a lambda, or another function that no configuration can name.
            self.model.compile(made_again(parallel.optimizer), **self.compiled_with)
            self.model.optimizer.build(self.model.trainable_variables)
        self._compiled_here = bool(self.model.compiled)

    def carry_optimizer(self, source: Setting, target: Setting) -> None:
        """Carry the state of the optimizer, where the template was compiled here."""
        if self._compiled_here and len(source.variables) == len(target.variables):
            carry(source, target)


class TemplateUpdate(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Comes before the user's callbacks, so that those find the trained weights in the template."""

    def on_epoch_begin(self, epoch: int, logs: Setting = None) -> None:
        self.model.template_is_behind()
        tell_shares_of(self.model.devices, self.model.ratios)

    def on_epoch_end(self, epoch: int, logs: Setting = None) -> None:
        self.model.update_template()


class KeepsTemplate:
    """What a parallel model adds to Keras' training and saving; a base beside ``keras.Model``."""

    _parts: Setting
    replicas: Setting
    optimizer: Setting
    compiled: bool

    @property
    def template(self) -> keras.Model:
        """The model this was made of, with what is trained so far."""
        self.update_template()
        return self._parts.template.model

    def template_is_behind(self) -> None:
        """The replicas are about to be trained, or were."""
        self._parts.template.is_behind = True

    def update_template(self) -> None:
        """Give the template the weights of the replicas, if those have moved on."""
        kept = self._parts.template
        if kept.is_behind:
            carry(self.replicas, kept.model)
            kept.is_behind = False

    def _take_from_template(self) -> None:
        """Where its owner gave the template other weights since, go on with those."""
        kept = self._parts.template
        if not kept.is_behind and differ(kept.model, self.replicas):
            carry(kept.model, self.replicas)
            carry_adapted(kept.model, self.replicas)

    def fit(
        self,
        x: Setting = None,
        y: Setting = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: Setting = "auto",
        callbacks: Setting = None,
        *more: Setting,
        **named: Setting,
    ) -> Setting:
        """As Keras does. The template has the trained weights after each epoch and at the end."""
        self._take_from_template()
        keeper = TemplateUpdate()
        listed = isinstance(callbacks, keras.callbacks.CallbackList)
        if listed:
            keeper.set_model(self)
            callbacks.callbacks.insert(0, keeper)
        else:
            callbacks = [keeper, *keras.tree.flatten(callbacks or [])]
        words = (x, y, batch_size, epochs, verbose, callbacks, *more)
        try:
            return super().fit(*words, **named)  # type: ignore[misc]
        finally:
            if listed:
                callbacks.callbacks.remove(keeper)
            self.template_is_behind()  # EarlyStopping and moving averages act at the very end
            self.update_template()

    def evaluate(self, *words: Setting, **named: Setting) -> Setting:
        """As Keras does, each batch split."""
        self._take_from_template()
        return super().evaluate(*words, **named)  # type: ignore[misc]

    def predict(self, *words: Setting, **named: Setting) -> Setting:
        """As Keras does, each batch split."""
        self._take_from_template()
        return super().predict(*words, **named)  # type: ignore[misc]

    def train_on_batch(self, *words: Setting, **named: Setting) -> Setting:
        """As Keras does; ``template`` has the new weights, the model it was made of may lag."""
        self._take_from_template()
        self.template_is_behind()
        return super().train_on_batch(*words, **named)  # type: ignore[misc]

    def test_on_batch(self, *words: Setting, **named: Setting) -> Setting:
        """As Keras does, the batch split."""
        self._take_from_template()
        return super().test_on_batch(*words, **named)  # type: ignore[misc]

    def predict_on_batch(self, *words: Setting, **named: Setting) -> Setting:
        """As Keras does, the batch split."""
        self._take_from_template()
        return super().predict_on_batch(*words, **named)  # type: ignore[misc]

    def set_weights(self, weights: Setting) -> None:
        """As Keras does, and in the template."""
        self.replicas.set_weights(weights)
        self.template_is_behind()
        self.update_template()

    def save(self, filepath: Setting, *words: Setting, **named: Setting) -> None:
        """Save the template with the trained weights: a model for one device.

        It is compiled as this one is and has the state of the optimizer, so that what is
        loaded can be trained further.
        """
        self._dressed_template().save(filepath, *words, **named)

    def save_weights(self, filepath: Setting, *words: Setting, **named: Setting) -> None:
        """Save the weights of the template, which are those that were trained."""
        self._dressed_template().save_weights(filepath, *words, **named)

    def load_weights(self, filepath: Setting, *words: Setting, **named: Setting) -> None:
        """Load weights that this model or the template saved; all replicas take them."""
        template = self._dressed_template()
        template.load_weights(filepath, *words, **named)
        carry(template, self.replicas)
        if self.compiled and self.optimizer is not None:
            self._parts.template.carry_optimizer(template.optimizer, self.optimizer)

    def export(self, filepath: Setting, *words: Setting, **named: Setting) -> Setting:
        """Export the template with the trained weights."""
        return self.template.export(filepath, *words, **named)

    def summary(self, *words: Setting, **named: Setting) -> Setting:
        """Of the template: what is copied to every device."""
        return self._parts.template.model.summary(*words, **named)

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

    def _dressed_template(self) -> keras.Model:
        """The template with the trained weights, compiled, with the state of the optimizer."""
        kept = self._parts.template
        self.update_template()
        kept.compile_like(self)
        if kept.model.compiled and self.compiled:
            kept.carry_optimizer(self.optimizer, kept.model.optimizer)
        return kept.model
