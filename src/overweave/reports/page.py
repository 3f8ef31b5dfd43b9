"""A page of HTML in one file: figures inside, no external resources, no scripts; light and dark, on screen and on paper.

Pages are trees of elements, which the standard library writes; texts cannot become markup, whatever anybody called a thing.
"""

import base64
from collections.abc import Iterable, Sequence
from xml.etree.ElementTree import Element, tostring

from overweave.pipeline.locations import Location, LocationLike
from overweave.reports.labels import number_text
from overweave.reports.style import Figure

_STYLE = """
:root{color-scheme:light dark;--ink:#2b2f36;--faint:#6b7280;--ground:#fff;--panel:#f5f6f8;--line:#d9dce2}
@media(prefers-color-scheme:dark){:root{--ink:#d5d9e0;--faint:#98a0ac;--ground:#16181d;--panel:#20242b;--line:#3a404a}}
*{box-sizing:border-box}
body{margin:0 auto;padding:2rem 1.25rem 4rem;max-width:64rem;background:var(--ground);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
h1{font-size:1.7rem;line-height:1.2;margin:0 0 .25rem;overflow-wrap:anywhere}
h2{font-size:1.2rem;margin:2.5rem 0 .75rem;padding-bottom:.25rem;border-bottom:1px solid var(--line)}
p{margin:.5rem 0;max-width:46rem;overflow-wrap:anywhere}
.faint,figcaption,dt{color:var(--faint)}
dl.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(9.5rem,1fr));gap:.6rem;margin:1.25rem 0}
dl.facts>div{background:var(--panel);border-radius:.4rem;padding:.6rem .8rem}
dt{font-size:.8rem}
dd{margin:0;font-size:1.2rem;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
figure{margin:1.25rem 0}
figure img{display:block;width:100%;max-width:46rem;height:auto}
figcaption{font-size:.85rem;max-width:46rem}
.wide{overflow-x:auto;margin:1rem 0}
table{border-collapse:collapse;font-size:.85rem;font-variant-numeric:tabular-nums}
th,td{padding:.3rem .9rem .3rem 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}
th{font-weight:600;color:var(--faint);vertical-align:bottom}
.number{text-align:right;white-space:nowrap}
@media print{:root{--ink:#000;--faint:#444;--ground:#fff;--panel:#fff;--line:#bbb}
body{max-width:none;padding:0;font-size:10pt}figure,dl.facts>div,tr{break-inside:avoid}h2{break-after:avoid}
dl.facts>div{border:1px solid var(--line)}.wide{overflow:visible}table{font-size:8pt}thead{display:table-header-group}}
"""

Content = Element | str


def element(tag: str, *contents: Content, **attributes: str) -> Element:
    """An element with texts and elements in it; ``class_`` is its class.

    >>> tostring(element("p", "a < b", element("b", "<script>"), class_="x"), "unicode", "html")
    '<p class="x">a &lt; b<b>&lt;script&gt;</b></p>'
    """
    made = Element(tag, {name.rstrip("_"): value for name, value in attributes.items()})
    for content in contents:
        if isinstance(content, Element):
            made.append(content)
        elif len(made):
            made[-1].tail = (made[-1].tail or "") + content
        else:
            made.text = (made.text or "") + content
    return made


def section(title: str, *contents: Content) -> Element:
    """A part of a page."""
    return element("section", element("h2", title), *contents)


def facts(named: Iterable[tuple[str, object]]) -> Element:
    """A few numbers that matter most."""
    boxes = [element("div", element("dt", name), element("dd", number_text(value))) for name, value in named]
    return element("dl", *boxes, class_="facts")


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> Element:
    """A table; columns of numbers are flush right."""
    listed = [list(row) for row in rows]
    numeric = [all(_is_number(row[place]) for row in listed) and bool(listed) for place in range(len(headings))]
    head = element("tr", *(_cell("th", heading, number) for heading, number in zip(headings, numeric, strict=True)))
    body = [
        element("tr", *(_cell("td", _written(value), number) for value, number in zip(row, numeric, strict=True)))
        for row in listed
    ]
    return element("div", element("table", element("thead", head), element("tbody", *body)), class_="wide")


class Number(str):
    """A formatted number, for example with its uncertainty."""


class Text(str):
    """A text that is shown in its full length."""


def image(figure: Figure) -> Element:
    """A figure, inside the page."""
    data = base64.b64encode(figure.adapted().encode()).decode()
    drawn = element("img", src=f"data:image/svg+xml;base64,{data}", alt=figure.caption, id=figure.name)
    return element("figure", drawn, element("figcaption", f"{figure.caption[0].upper()}{figure.caption[1:]}."))


def write_page(path: LocationLike, title: str, *contents: Content) -> None:
    """Write a page; it is there when it is complete."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", _STYLE),
    )
    html = element("html", head, element("body", element("main", element("h1", title), *contents)), lang="en")
    text = "<!DOCTYPE html>\n" + tostring(html, "unicode", "html") + "\n"
    Location.of(path).write_bytes(text.encode(errors="replace"))


def _cell(tag: str, text: str, number: bool) -> Element:
    return element(tag, text, class_="number") if number else element(tag, text)


def _written(value: object) -> str:
    return value if isinstance(value, Number | Text) else number_text(value)


def _is_number(value: object) -> bool:
    return value is None or isinstance(value, int | float | Number)
