"""The phase ring: its bytes and records, a run's facts, and the folders of rings.

Shared by the writer (``trainer_hooks.ring``) and the reader (``sources.ring_reader``). No file
is opened here.
"""
