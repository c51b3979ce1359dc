"""The template engine of the pages."""

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from okapi.report.numbers import plain


def render(template: str, **values: Any) -> Markup:
    """Return a template of this package filled in; values are escaped, but for those that are Markup."""
    return Markup(_environment().get_template(template).render(**values))


@cache
def _environment() -> Environment:
    engine = Environment(loader=PackageLoader("okapi.report"), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    engine.filters["plain"] = plain
    return engine
