"""One module for each command; ``replay`` is in ``report``, ``doctor`` is a package.

A command parses arguments, builds objects and chooses the exit code.
"""
