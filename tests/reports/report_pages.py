"""Names as bad as they can be, and pages as a browser reads them."""

import base64
import math
from html.parser import HTMLParser
from xml.etree import ElementTree

SCRIPT = "<script>alert(1)</script>"
BROKERS = ("$B_1^$ <b>&", "B2", "B3", "日本\x00")
PUBLISHERS = ("p\"1'", "-- p2 -->")


class Page(HTMLParser):
    """What a browser would make of a page."""

    VOID = ("meta", "img", "link", "br")

    def __init__(self, path):
        super().__init__()
        self.tags, self.attributes, self.texts, self.images, self._open = [], [], [], {}, []
        self.feed(path.read_text(encoding="utf-8"))
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        if tag not in self.VOID:
            self._open.append(tag)
        if tag == "img":
            given = dict(attributes)
            kind, _, data = given["src"].partition(";base64,")
            assert kind == "data:image/svg+xml"
            assert given["alt"]
            self.images[given["id"]] = base64.b64decode(data).decode()

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open and self._open[-1] != "style" and data.strip():
            self.texts.append(data)


def check_stands_alone(page):
    """Nothing is fetched, nothing runs, and every figure is a figure."""
    assert not {"script", "link", "iframe", "object", "base"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert all(value.startswith("data:") for name, value in page.attributes if name in ("src", "href", "srcset"))
    for svg in page.images.values():
        root = ElementTree.fromstring(svg)
        assert not [each for each in root.iter() if each.tag.endswith("script")]
        assert math.prod(float(side) for side in root.get("viewBox").split()[2:]) > 0
        # Ink follows the reader's ground.
        assert "currentColor" in svg
        assert "prefers-color-scheme:dark" in svg
