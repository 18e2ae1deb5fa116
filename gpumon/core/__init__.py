"""Types and maths, and nothing else: no I/O, no clock of its own, no threads.

At the top of it stands the vocabulary that every room shares: what a GPU said (``sample``), what
a training can be doing and an idle second be for (``phase``), the words of a verdict, one tick's
whole state. Each folder is one idea; what reads or writes anything outside lives in ``sources``
and ``outlets``.
"""
