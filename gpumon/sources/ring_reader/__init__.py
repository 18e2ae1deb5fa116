"""Phase rings as files in folders that anybody may write to: found, opened, read, removed.

Nothing in them is believed before ``core.ring_format`` has checked it. The folder that a daemon
lives in, with a place for rings, is here too: ``daemon_folder`` makes, checks and locks it.
"""
