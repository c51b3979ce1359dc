"""Parts of every page: the template engine, values as text, and figures that stand inside a page."""

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files
from xml.etree import ElementTree

import numpy as np
from jinja2 import Environment, PackageLoader
from markupsafe import Markup

SVG = "http://www.w3.org/2000/svg"
NOTHING = "–"
_XLINK = "http://www.w3.org/1999/xlink"


@cache
def environment() -> Environment:
    """Return the engine of the templates; it escapes what they are given."""
    engine = Environment(loader=PackageLoader("okapi.report"), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    engine.filters["number"] = as_text
    return engine


def asset(name: str) -> str:
    """Return the text of a file beside the templates."""
    return (files("okapi.report") / "templates" / name).read_text(encoding="utf-8")


def script_hash(script: str) -> str:
    """Return what a content security policy calls a script that may run."""
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


def as_text(value: object) -> str:
    """Format one fact or setting."""
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, int | np.integer):
        spaced = f"{int(value):,}".replace(",", "\N{NARROW NO-BREAK SPACE}")
        return spaced if abs(int(value)) >= 10_000 else str(value)
    if isinstance(value, float | np.floating):
        return f"{value:.4g}" if np.isfinite(value) else NOTHING
    return NOTHING if value is None else str(value)


def inline_svg(svg: str, prefix: str, caption: str) -> Markup:
    """Return a figure that can stand inside the page: its own ids, no size, no scripts, greys of the page's theme."""
    try:
        root = ElementTree.fromstring(svg)
    except ElementTree.ParseError as error:
        raise ValueError(f"figure {caption!r} is not well-formed SVG: {error}") from error
    if "viewBox" not in root.attrib:
        root.set("viewBox", f"0 0 {_pixels(root.get('width'))} {_pixels(root.get('height'))}")
    root.attrib.pop("height", None)
    if width := root.attrib.pop("width", ""):
        width = f"{width}px" if width[-1].isdigit() else width
        # On a phone a figure is scrolled rather than shrunk until its text cannot be read.
        root.set("style", f"--width: {width}; min-width: min(34rem, {width})")
    for parent in root.iter():
        for child in list(parent):
            if child.tag.rpartition("}")[2] in ("script", "foreignObject", "metadata"):
                parent.remove(child)
        if parent.tag == f"{{{SVG}}}style":
            parent.text = f"#{prefix} {{ {parent.text} }}"  # nested: matplotlib's rule for * is for the figure only
        for name, value in list(parent.attrib.items()):
            parent.attrib.pop(name)
            if not name.lower().startswith("on") and "javascript:" not in value.lower():
                parent.set(*_themed(name, value, prefix))
    root.attrib.update({"id": prefix, "role": "img", "aria-label": caption})
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", _XLINK)
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def themed(colour: str) -> str:
    """Return a colour, written as #rrggbb, that is lighter where the page is dark."""
    return f"color-mix(in oklab, white var(--lift), {colour})"


def _themed(name: str, value: str, prefix: str) -> tuple[str, str]:
    if name == "id":
        return name, f"{prefix}-{value}"
    value = re.sub(r"url\(#", f"url(#{prefix}-", value)
    if name.rpartition("}")[2] == "href":
        return name, re.sub(r"^#", f"#{prefix}-", value)
    if name in ("style", "fill", "stroke", "stop-color"):
        value = re.sub(r"\b(black|white)\b", lambda found: {"black": "#000", "white": "#fff"}[found[1]], value)
        value = re.sub(r"#([0-9a-fA-F]{6}|[0-9a-fA-F]{3})\b", _grey_of_theme, value)
    return name, value


def _grey_of_theme(found: re.Match[str]) -> str:
    """Turn a grey into the same mixture of ink and paper; lift other colours where the page is dark."""
    digits = found[1] if len(found[1]) == 6 else "".join(2 * digit for digit in found[1])
    red, green, blue = bytes.fromhex(digits)
    if max(red, green, blue) - min(red, green, blue) > 8:
        return themed(f"#{digits}")
    return f"color-mix(in srgb, var(--paper) {round(green / 2.55)}%, var(--ink))"


def _pixels(length: str | None) -> str:
    return re.sub(r"[a-z%]+$", "", length or "") or "100"
