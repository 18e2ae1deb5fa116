"""What gpumon writes down as JSON and reads back: report, state, recording.

Only codecs: the types they carry live in the rooms below, files and sockets above.
"""
