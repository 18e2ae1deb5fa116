"""Reads logs that other tools wrote. ``detect`` finds the format.

``formats`` has the readers, ``table`` reads columns, headings and cells, ``stamps`` reads times and
puts rows in order. In all of them ``lines`` are lines of a log, or pieces of them, ``name`` is its
name in messages, and ``number`` the number of a line, from 1.
"""
