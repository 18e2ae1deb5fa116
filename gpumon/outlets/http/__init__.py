"""The daemon's web server, with limits on everything that a client may use.

The files of the live page are in ``outlets/web``, the content of ``/metrics`` in
``outlets.metrics``.
"""
