"""Where the time went, kept on disk over restarts of the daemon: an SQLite file with one writer.

Only ``serve`` imports it. Others ask the daemon.
"""
