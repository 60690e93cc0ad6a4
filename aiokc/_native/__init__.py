"""The C extension: optional (aiokc.native loads it), and the same in effect as its counterparts in Python."""
