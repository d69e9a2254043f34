"""Marks of a case that exists once for each minor version, with the section of the standard of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest


def rule(
    name: str,
    v40: str = "",
    v41: str = "",
    *,
    v42: str = "",
    of: str = "RFC 8881",
    over: Mapping[str, Any] | None = None,
    arg: str = "what",
    after: Sequence[str] = (),
    **values: Any,
) -> Callable[[Any], Any]:
    """Mark a function as the cases NFS40-, NFS41- and NFS42-``name``; it has the parameter ``minor``.

    ``v40`` is a section of RFC 7530, ``v41`` of the standard ``of`` (for 4.1 and 4.2), ``v42`` one of another
    RFC with its name, for 4.2 alone; without a section there is no case for that version. With ``over`` there
    is a case for each of its values, the parameter ``arg``, with its key at the end of the id. ``after`` are
    the names of cases of the same version that it builds on; ``{}`` in one is the key. One of the cases of
    ``over`` can be among them: it does not build on itself.
    """
    sections = {
        0: v40 and f"RFC 7530 {v40}",
        1: v41 and f"{of} {v41}",
        2: v42 or (v41 and f"{of} {v41}"),
    }
    found = []
    for minor, section in sections.items():
        for key, value in ({"": None} if over is None else over).items():
            identifier = f"NFS4{minor}-{name}" + (f"-{key}" if key else "")
            bases = (f"NFS4{minor}-{one.format(key)}" for one in after)
            base = tuple(one for one in bases if one != identifier)
            mark = pytest.mark.case(identifier, section=section, builds_on=base, **values)
            cells = (minor,) if over is None else (minor, value)
            if section:
                found.append(pytest.param(*cells, id=identifier, marks=mark))
    return pytest.mark.parametrize(("minor",) if over is None else ("minor", arg), found)
