"""What a body is given, by the name of its argument: one module each.

Each has ``give(path, case)``: a context manager that makes a place of the case's own on the directory or
device at ``path``, yields what the body gets, and leaves nothing. ``case`` is its part of the request:
``index`` counts the cases of this round trip from 0, ``name`` is unlike any other's there ever was.
``BESIDE`` is how many cases may run at once on one target.
"""
