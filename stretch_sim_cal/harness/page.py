"""Self-contained HTML pages."""

import base64
import html
from pathlib import Path

from stretch_sim_cal.files import write_text

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #222; max-width: 1100px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.5em; margin-bottom: 0.2em } h2 { margin-top: 1.8em; font-size: 1.15em }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; padding: 0.35em 0.7em; border-bottom: 1px solid #ddd }
td.number { font-variant-numeric: tabular-nums; white-space: nowrap } img { max-width: 100%; height: auto }
.pass { color: #14713a; font-weight: 600 } .fail { color: #b3142a; font-weight: 600 }
.lead { font-size: 1.1em } pre { background: #f5f5f5; padding: 0.8em; overflow-x: auto; font-size: 0.85em }
"""


def write_page(path: Path, title: str, parts: list[str]) -> Path:
    """Write a self-contained page of HTML parts, and return its path."""
    head = f"<meta charset='utf-8'><title>{html.escape(title)}</title><style>{STYLE}</style>"
    write_text(path, f"<!doctype html><html lang='en'><head>{head}</head><body>{''.join(parts)}</body></html>\n")
    return path


def image(title: str, png: bytes) -> str:
    """Return a picture under its title as a part of a page."""
    encoded = base64.b64encode(png).decode()
    return f"<h2>{html.escape(title)}</h2><img alt='{html.escape(title)}' src='data:image/png;base64,{encoded}'>"
