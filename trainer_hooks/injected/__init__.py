"""What `gpumon run` puts into a training script, whose code stays as it is.

`python_path/sitecustomize.py` watches imports. When a hooked method is first entered, it imports
one module of this package, and its ``around`` makes every call of that method.
"""

from __future__ import annotations

import threading

from trainer_hooks.ring.guard import guards_itself

script_imported_hooks = False
"""Whether the script itself had imported ``trainer_hooks`` before: then its loops are its own."""


class InsideTrainer(threading.local):
    """Whether this thread is in a method of a trainer, whose tagger sees what it fetches.

    ``with inside_trainer: ...`` around such a method.
    """

    _depth = 0

    @guards_itself
    def __bool__(self) -> bool:
        return self._depth > 0

    @guards_itself
    def __enter__(self) -> None:
        self._depth += 1

    @guards_itself
    def __exit__(self, *_: object) -> None:
        self._depth -= 1


inside_trainer = InsideTrainer()
