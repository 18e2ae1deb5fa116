"""A tagger that was given to a trainer it is not for: what the error says."""

from __future__ import annotations

from typing import Final

from trainer_hooks.ring.process_ring import withdraw_run

_WHERE: Final = {
    "setup": "trainer_hooks.lightning",
    "on_exception": "trainer_hooks.lightning",
    "on_init_end": "trainer_hooks.huggingface",
    "on_batch_begin": "trainer_hooks",
    "on_batch_end": "trainer_hooks",
    "set_params": "trainer_hooks",
}
"""What only one trainer looks for in its callbacks, and the package of the tagger for it."""
_TRAINER: Final = {
    "trainer_hooks": "Keras",
    "trainer_hooks.lightning": "Lightning",
    "trainer_hooks.huggingface": "the Hugging Face Trainer",
}


def missing_attribute(tagger: object, name: str) -> AttributeError:
    """The error of a tagger that lacks an attribute, which may tell whose tagger was meant.

    A run that is known by the mistaken tagger alone is withdrawn.

    Returns:
        The sentence for what only another trainer asks for; else the usual one.
    """
    module, kind = type(tagger).__module__, type(tagger).__qualname__
    if name not in _WHERE:
        return AttributeError(f"{kind!r} object has no attribute {name!r}")
    withdraw_run()
    package = _WHERE[name]
    return AttributeError(
        f"gpumon has another tagger for {_TRAINER[package]}: "
        f"`from {package} import PhaseTagger` (this one is that of {module})",
        name=None,  # named, Python would end the sentence with a guess: "Did you mean: ..."
        obj=None,
    )
