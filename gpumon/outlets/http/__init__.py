"""The daemon's web server: bounded in every way, and what each address answers.

The files of the live page lie in ``outlets/web``, what ``/metrics`` says in ``outlets.metrics``.
"""
