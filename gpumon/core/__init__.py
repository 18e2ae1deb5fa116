"""Types and maths, and nothing else: no I/O, no clock of its own, no threads.

Its own files are the vocabulary: what is asked of a clock, what a training can be doing and an
idle second be for (``phase``), the words of a verdict, how things are said (``wording``), what a
GPU said (``sample``, above ``ring``), one tick's whole ``state`` (above ``report``). Each folder is
one idea; what reads or writes anything outside lives in ``sources`` and ``outlets``.
"""
