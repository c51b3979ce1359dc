"""A page: facts, notes and sections in one HTML file that loads nothing from elsewhere."""

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeAlias

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from okapi.messages import printable
from okapi.numbers import plain
from okapi.report.plots import to_svg
from okapi.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_ROWS = 300  # of a table
Drawing: TypeAlias = "tuple[str, Figure | str]"
"""Caption, and a figure or its SVG."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a page.

    Parameters
    ----------
    title : str
    name : str
        By which links refer to it.
    body : Markup
        HTML, such as ``table_html`` and ``figures_html`` return.
    about : str
        Sentences above the body.
    notes : sequence of str
        What stands below it.
    """

    title: str
    name: str
    body: Markup
    about: str = ""
    notes: Sequence[str] = ()


def table_section(table: Table) -> Section:
    """Return a section that is a table, called by its title and name."""
    return Section(title=table.title, name=table.name, body=table_html(table))


def figures_section(figures: Sequence[Drawing]) -> list[Section]:
    """Return a section of figures; none without figures."""
    return [Section(title="Figures", name="figures", body=figures_html(figures))] if figures else []


def settings_section(settings: Mapping[str, object]) -> Section:
    """Return what a page was made with, as its last section."""
    names = [label if "." in label else label.replace("_", " ") for label in settings]  # keys of a config stay
    rows = [[name, plain(value)[:200]] for name, value in zip(names, settings.values(), strict=True)]
    return table_section(Table(title="Settings", name="settings", columns=["setting", "value"], rows=rows))


def table_html(table: Table, most: int = MOST_ROWS) -> Markup:
    """Return a table as HTML, escaped; one of more rows than ``most`` is cut and says so."""
    return render(
        "table.jinja",
        table=table,
        rows=[
            list(zip(table.heads, row, texts, strict=True))
            for row, texts in zip(table.cells[:most], table.texts(), strict=False)
        ],
        shaded=any(cell.shade is not None for row in table.cells for cell in row),
        below=[*table.legend(best="Bold", bad="Marked"), *table.notes],
    )


def figures_html(figures: Iterable[Drawing], captions: bool = True) -> Markup:
    """Return figures side by side, as images; captions are what screen readers say, too."""
    drawn = [(caption, svg_uri(figure if isinstance(figure, str) else to_svg(figure))) for caption, figure in figures]
    image = Markup('<figure><img src="{1}" alt="{0}">{2}</figure>')
    below = Markup("<figcaption>{0}.</figcaption>")
    parts = [image.format(caption, uri, below.format(caption) if captions else "") for caption, uri in drawn]
    return Markup('<div class="figures">{0}</div>').format(Markup("\n").join(parts))


def page(
    *,
    title: str,
    kicker: str,
    sections: Sequence[Section],
    facts: Mapping[str, object] | None = None,
    notes: Sequence[str] = (),
) -> str:
    """Return a page as HTML. All text is escaped; a policy in it forbids all scripts but its own.

    Parameters
    ----------
    title, kicker : str
        Its heading, and what stands above that.
    sections : sequence of Section
    facts : mapping, optional
        The few numbers that matter, by label.
    notes : sequence of str
        Remarks that a reader must not miss.
    """
    script = _asset("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    html = render(
        "page.jinja",
        title=title,
        kicker=kicker,
        sections=sections,
        facts=facts or {},
        notes=notes,
        script=Markup(script),
        script_hash=Markup(f"sha256-{digest}"),
        style=Markup(_asset("page.css")),
    )
    return printable(html)


def svg_uri(svg: str) -> str:
    """Return an SVG as a data URI."""
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


def render(template: str, **values: Any) -> Markup:
    """Return a template of this package filled in; values are escaped, but for those that are Markup."""
    return Markup(_environment().get_template(template).render(**values))


@cache
def _environment() -> Environment:
    engine = Environment(loader=PackageLoader("okapi.report"), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    engine.filters["plain"] = plain
    return engine


def _asset(name: str) -> str:
    return (files("okapi.report") / "templates" / name).read_text(encoding="utf-8")
