"""HTML templates (Jinja2). Every value is escaped, unless it is the result of :func:`render` itself."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

__all__ = ["render"]


def render(template: str, **context: object) -> Markup:
    """Return the template of that file name with ``context``, ready to stand in another one."""
    return Markup(_environment().get_template(template).render(context))  # noqa: S704  # it is escaped


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("storagetest.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
