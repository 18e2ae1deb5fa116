"""Verdicts, the rules they rest on, findings, advice and comparisons, and their sentences.

All pure, over a report or parts of it. ``outlets.text`` puts the sentences on a screen.
"""
