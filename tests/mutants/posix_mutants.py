"""Every mutant of the file system, by name: importing their modules enters them."""

import importlib

from posix_rules import MUTANTS

__all__ = ["MUTANTS"]

for _area in (
    "again",
    "attribute",
    "alike",
    "border",
    "counted",
    "crowded",
    "data",
    "descriptor",
    "detail",
    "directory",
    "exchanged",
    "freed",
    "fresh",
    "full",
    "handle",
    "held",
    "historic",
    "idle",
    "kept",
    "later",
    "lifetime",
    "lock",
    "marked",
    "missed",
    "moved",
    "name",
    "open",
    "other",
    "pair",
    "queue",
    "permission",
    "pipe",
    "placed",
    "range",
    "rare",
    "refused",
    "rewritten",
    "round",
    "size",
    "stale",
    "tree",
    "twice",
    "unseen",
    "xattr",
):
    importlib.import_module(f"posix_{_area}_mutants")
