"""Reports in a browser: they load nothing, and nothing is wider than the window."""

import html
import json
import re
import shutil
import subprocess

import pytest

from tests.report.test_report import CASES, run  # noqa: F401

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome", "msedge")
WIDTHS = (1280, 390)
# Measures the page in a frame: a browser's window cannot have 390 pixels everywhere.
FRAME = """<!doctype html><body><iframe width="{width}" height="800" srcdoc="{page}"></iframe>
<script>onload = () => {{
  const frame = document.querySelector("iframe").contentWindow, page = frame.document;
  const root = page.documentElement;
  const wide = [...page.querySelectorAll("body *")].filter(element =>
    element.getBoundingClientRect().right > root.clientWidth + 1 && !element.closest(".scroll"));
  const boxes = [...page.querySelectorAll("svg")].map(x => x.getBoundingClientRect().width);
  document.title = JSON.stringify({{
    width: root.clientWidth, scrolled: root.scrollWidth, wide: wide.map(x => x.outerHTML),
    narrowest: Math.min(...boxes),
    loaded: frame.performance.getEntriesByType("resource").map(x => x.name),
  }});
}}</script>"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browse(tmp_path_factory):
    """(path, flags) -> the document after its scripts ran."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if not browser:
        pytest.skip(f"needs one of {', '.join(BROWSERS)}")
    profile = tmp_path_factory.mktemp("profile")

    def browse(path, *flags):
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
        command += [f"--user-data-dir={profile}", *flags, path.as_uri()]
        return subprocess.run(command, capture_output=True, text=True, timeout=120).stdout

    return browse


def measure(browse, page, width, folder):
    path = folder / f"{width}.html"
    path.write_text(FRAME.format(width=width, page=html.escape(page)))
    title = re.search("<title>(.*?)</title>", browse(path), re.DOTALL)[1]
    return json.loads(html.unescape(title))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_page_fits_its_window_and_loads_nothing(run, case, browse, tmp_path):  # noqa: F811
    out, _, page = run(case)
    for width in WIDTHS:
        found = measure(browse, page.html, width, tmp_path)
        assert found["wide"] == []
        assert found["scrolled"] <= found["width"] <= width
        assert found["narrowest"] > 250
        assert found["loaded"] == []
    assert browse(out / "report.html").count("<tr>") == page.html.count("<tr>")


def test_requests_and_wide_pages_are_noticed(browse, tmp_path):
    page = "<p style='width: 500px'>wide</p><svg></svg><img src='http://127.0.0.1:9/x.png'>"
    found = measure(browse, page, 390, tmp_path)
    assert found["loaded"] == ["http://127.0.0.1:9/x.png"]
    assert len(found["wide"]) == 1
    assert found["scrolled"] > 390
