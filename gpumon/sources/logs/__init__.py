"""Logs that other tools wrote: what each is, who reads it, and the lines it is made of.

One file in ``formats`` is one format; ``table`` reads columns and cells, ``stamps`` puts rows in
the order of time.
"""
