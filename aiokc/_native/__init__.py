"""The extension in C: optional, chosen by aiokc.native, and in step with its twins in Python."""
