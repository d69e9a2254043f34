"""Seeded sequences of operations on files, and models of what a file protocol has to return: pure.

``data`` (bytes of several files), ``names`` (a tree of directories), ``ranges`` (byte-range locks),
``shares`` (opens with share modes) and ``attributes`` each make a list of steps from a seed. A step has its
expected result, because a model computes it: what a standard leaves to the server is in no step. A suite has
a driver that makes the requests of its protocol, and ``history`` names the step and what was done to the same
object before when a claim fails.
"""
