"""Texts and self-contained HTML pages, from `templates/`; the templates of pages escape their values."""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

from stretch_sim_cal.command import listed
from stretch_sim_cal.files import write_text

TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")), autoescape=jinja2.select_autoescape(),
    trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined,
)  # fmt: skip
TEMPLATES.filters["base64"] = lambda content: base64.b64encode(content).decode()
TEMPLATES.filters["listed"] = listed


class Section(NamedTuple):
    """A part of a page under its title: a picture (PNG) or HTML, or why it is missing."""

    title: str
    png: bytes = b""
    html: str = ""
    missing: str = ""


def rendered(template: str, **values: Any) -> Markup:
    return Markup(TEMPLATES.get_template(f"{template}.html").render(values))


def text_lines(template: str, **values: Any) -> list[str]:
    """Return the lines of a text, without empty ones."""
    return [line for line in TEMPLATES.get_template(f"{template}.txt").render(values).splitlines() if line]


def write_page(path: Path, title: str, parts: Sequence[Section] = (), template: str = "page", **values: Any) -> Path:
    """Write a page with its `parts`, by a `template` with further values, and return its path."""
    write_text(path, f"{rendered(template, title=title, parts=parts, **values)}\n")
    return path
