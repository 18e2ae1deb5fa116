"""Find, open, read and remove phase rings: untrusted files in folders that anyone may write.

``core.ring_format`` checks their contents. ``daemon_folder`` makes, checks and locks a daemon's
own folder.
"""
