"""One file a command, and beside them what commands are made of.

A command parses words, builds objects and chooses exit codes. ``replay`` stands in ``report``,
for it is the report of a recording; ``doctor`` is a folder.
"""
