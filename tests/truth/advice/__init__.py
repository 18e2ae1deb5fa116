"""Advice followed: for each cause and reason a training before and after the change it asks for.

``python -m tests.truth.advice`` runs them beside a real daemon and writes docs/advice-bounds.md.
"""
