"""Columns, headings and cells, and which GPU a row speaks of; what the first rows tell, or a guess.

A table is long where a row speaks of one GPU, and wide where it has a column for each of them.
"""
