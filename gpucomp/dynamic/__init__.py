"""Graphs of which a part waits for values: shapes and loops that only a run decides."""
