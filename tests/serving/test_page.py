"""The page of the server in a browser: type, submit, read; at both widths, and without a mouse."""

import http.server
import json
import re
import shlex
import shutil
import subprocess
import threading
import time

import pytest

from tests.oracle import golden
from tests.report.test_browser import BROWSERS
from tests.serving.servers import in_new_process

pytestmark = pytest.mark.slow
WIDTHS = (1280, 390)
MARKUP = "the <img src=x onerror=alert(1)> film </textarea><script>alert(2)</script> & good"
CONTEXT = "the good film was not slow 😀 it was a fast story the bad plot"
# The elements that reach beyond the window.
TOO_WIDE = """() => [...document.querySelectorAll("body *")].filter(
    x => x.getBoundingClientRect().right > document.documentElement.clientWidth + 1
).map(x => x.outerHTML)"""

TEXT_WITHOUT_NOTES = """() => {
    const text = document.querySelector("#result .text").cloneNode(true);
    text.querySelectorAll("small").forEach(x => x.remove());
    return text.textContent;
}"""


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if not path:
        pytest.skip(f"needs one of {', '.join(BROWSERS)}")
    with playwright.sync_playwright() as session:
        # Other sites, on this machine.
        args = ["--no-sandbox", "--host-resolver-rules=MAP *.example 127.0.0.1"]
        browser = session.chromium.launch(executable_path=path, args=args)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def folders(tiny, tmp_path_factory):
    folder = shutil.copytree(golden("run_directories"), tmp_path_factory.mktemp("runs") / "runs")
    shutil.copy(folder / "run_classifier" / "vocab.txt", folder / "run_pretraining")
    names = ("run_squad", "run_classifier_tsv", "run_ner", "run_pretraining")
    return {name: folder / name for name in names} | {"encoder": tiny.folder}


@pytest.fixture(scope="module")
def server(folders, tmp_path_factory):
    flags = [f"--model={name}={path}" for name, path in folders.items()]
    folder = tmp_path_factory.mktemp("log")
    with in_new_process(*flags, "--max_seq_length=24", folder=folder) as server:
        yield server


class Page:
    """The page in a window; fails for errors, for requests elsewhere and for what is too wide."""

    def __init__(self, browser, server, width=1280, path="/", **settings):
        self.page = browser.new_page(viewport={"width": width, "height": 800}, **settings)
        self.problems = []
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("dialog", lambda dialog: self.problems.append(dialog.message))
        self.page.on("console", lambda message: self.problems.append(message.text))
        self.page.on("request", lambda request: self.note(request.url, server.url))
        self.page.goto(server.url + path)

    def note(self, url, own):
        if not url.startswith((own, "data:")):
            self.problems.append(url)

    def choose(self, model):
        # The page asks the server for its models: `inner_text` waits for them.
        option = self.page.locator("option").filter(has_text=re.compile(rf"^\s*{model}\b"))
        self.page.select_option("select", label=option.first.inner_text())

    def submit(self, *texts):
        """Types the texts, and submits them with the keyboard; returns the result's text."""
        for number, text in enumerate(texts):
            self.page.locator("form input, form textarea").nth(number).fill(text)
        self.page.keyboard.press("Control+Enter")
        self.page.wait_for_selector("#result button, #result .error")
        return self.page.inner_text("#result").removesuffix("\nCopy as curl").rstrip()

    def close(self):
        assert self.page.evaluate(TOO_WIDE) == []
        assert self.problems == []
        self.page.close()


@pytest.fixture
def visit(browser, server):
    pages = []

    def visit(**settings):
        pages.append(Page(browser, server, **settings))
        return pages[-1]

    yield visit
    for page in pages:
        page.close()


@pytest.mark.parametrize("width", WIDTHS)
def test_predictions_of_all_tasks(visit, width):
    page = visit(width=width)
    page.choose("run_classifier_tsv")
    shown = page.submit(MARKUP).split("\n")
    assert sum(float(x.rstrip(" %")) for x in shown[1::2]) == pytest.approx(100, abs=0.3)
    assert page.page.locator("#result i").count() == len(shown) // 2 == 3
    page.choose("run_ner")
    page.submit(MARKUP)
    assert page.page.evaluate(TEXT_WITHOUT_NOTES) == MARKUP
    assert page.page.locator("#result img, #result script").count() == 0
    page.choose("run_squad")
    page.submit("what was good", CONTEXT)
    answer = page.page.locator("#result > p").first.inner_text()
    assert page.page.locator("#result mark").all_inner_texts() == [answer]
    assert page.page.locator("#result .text").inner_text() == CONTEXT
    page.choose("run_pretraining")
    assert page.submit("the [MASK] was [MASK]").count("[MASK]") == 2
    page.choose("encoder")
    assert page.submit("the film", "the film") == "cosine similarity\n1.000"


@pytest.mark.parametrize("width", WIDTHS)
def test_colors_of_tokens(visit, width):
    page = visit(width=width)
    page.choose("run_classifier_tsv")
    page.page.locator("textarea").first.fill("the bad film <b>was</b> slow")
    page.page.get_by_role("button", name="Why?").click()
    page.page.wait_for_selector("#result button")
    assert page.page.locator("#result > .bar").count() == 3  # the prediction stays
    assert page.page.locator("#result .text").inner_text() == "the bad film <b>was</b> slow"
    colors = "() => [...document.querySelectorAll('#result mark')].map(x => x.style.background)"
    assert len({*page.page.evaluate(colors)}) > 2
    assert page.page.locator("#result p").last.inner_text().endswith("red ones against it.")


def test_examples_and_their_curl_commands(visit, server, folders):
    page = visit()
    for name in folders:
        page.choose(name)
        page.page.keyboard.press("Control+Enter")
        page.page.wait_for_selector("#result button")
        page.page.get_by_role("button", name="Copy as curl").click()
        command = page.page.inner_text("#result pre")
        reply = subprocess.run(shlex.split(command), capture_output=True, check=True).stdout
        assert "error" not in json.loads(reply), command
    page.choose("run_classifier_tsv")
    page.submit('it\'s "<b>"')
    page.page.get_by_role("button", name="Copy as curl").click()
    reply = subprocess.run(shlex.split(page.page.inner_text("#result pre")), capture_output=True)
    assert b"score" in reply.stdout


def test_the_last_of_several_clicks_counts(visit, server):
    page, start = visit(), len(server.log)
    page.choose("run_classifier_tsv")
    text = page.page.locator("textarea").first
    for value in ("bad", "good"):
        text.fill(value)
        page.page.get_by_role("button", name="Why?").click()
    text.fill("slow")
    page.page.get_by_role("button", name="Copy as curl").click()
    commands = page.page.inner_text("#result pre").split("\n")
    assert ["good" in x for x in commands] == [True, True]
    assert page.page.inner_text("#result .text") == "good"
    assert statuses_of(server, "/predict", 2, start) == [200, 200]


def test_models_of_one_text_have_one_box(visit):
    page = visit()
    for name, count in (("run_classifier_tsv", 1), ("run_squad", 2), ("run_ner", 1)):
        page.choose(name)
        assert page.page.locator("form input, form textarea").count() == count


def test_errors_are_shown_as_text(visit):
    page = visit()
    page.choose("run_pretraining")
    assert "expected a text with [MASK]" in page.submit(f"{MARKUP}")
    assert page.page.locator("#result img").count() == 0
    # The browser logs the status of each failed request.
    page.problems = [x for x in page.problems if "400 (Bad Request)" not in x]


def test_keyboard_alone(visit):
    page = visit()
    focused = "() => document.activeElement.tagName"
    page.choose("run_classifier_tsv")
    page.page.wait_for_selector("textarea:focus")
    page.page.keyboard.type("the film")
    page.page.keyboard.press("Tab")
    assert page.page.evaluate(focused) == "BUTTON"
    page.page.keyboard.press("Enter")
    page.page.wait_for_selector("#result .bar")


def test_dark_mode(visit):
    color = "() => getComputedStyle(document.documentElement).colorScheme"
    background = "() => getComputedStyle(document.querySelector('textarea')).backgroundColor"
    light, dark = (visit(color_scheme=x) for x in ("light", "dark"))
    for page in (light, dark):
        page.page.wait_for_selector("textarea")
        assert page.page.evaluate(color) == "light dark"
    assert light.page.evaluate(background) != dark.page.evaluate(background)


@pytest.mark.parametrize("width", WIDTHS)
def test_description_of_the_routes(visit, width):
    page = visit(path="/docs", width=width)
    page.page.wait_for_selector("details")
    summaries = page.page.locator("summary code:first-child").all_inner_texts()
    assert {"POST /embed", "GET /health", "POST /v1/models/{name}:predict"} <= {*summaries}
    for index in range(len(summaries)):
        page.page.locator("summary").nth(index).click()
    for command in page.page.locator("pre").all_inner_texts():
        reply = subprocess.run(shlex.split(command), capture_output=True, check=True).stdout
        # No model is for text-ranking.
        assert (b'"error":' in reply) == ("/rerank" in command), command
    assert "Fields: signature_name, instances, inputs" in page.page.inner_text("main")


def test_page_asks_for_a_key(browser, folders, tmp_path):
    keys = tmp_path / "keys.txt"
    keys.write_text("secret\n")
    flags = [f"--model_dir={folders['run_ner']}", f"--api_key_file={keys}"]
    with in_new_process(*flags, folder=tmp_path) as server:
        page = browser.new_page()
        page.on("dialog", lambda dialog: dialog.accept("secret"))
        page.goto(server.url)
        page.fill("textarea", "the film")
        page.click("button")
        page.wait_for_selector("#result > p")
        page.close()
        assert "secret" not in server.log


OTHER_PAGE = """<!doctype html><title>other</title>
<a href="{url}/docs">a link</a>
<form method=post enctype=text/plain action={url}/predict>
<input name='{{"inputs": "a", "x":"' value='"}}'></form>
<iframe sandbox="allow-scripts" srcdoc="<script>
    fetch('{url}/predict', {{method: 'POST', mode: 'no-cors', body: '{{}}'}})</script>"></iframe>
"""
CALL = """async ([url, mode, type]) => {
    const settings = {method: "POST", mode, body: '{"inputs": "a"}'};
    settings.headers = {"content-type": type};
    try { return (await fetch(url + "/predict", settings)).status } catch (error) { return -1 }
}"""


@pytest.fixture
def other_port(server):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(OTHER_PAGE.format(url=server.url).encode())

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        yield other.server_address[1]
        other.shutdown()


def statuses_of(server, path, count, start):
    """Waits until the server has logged so many requests; returns their statuses."""
    for _ in range(200):
        lines = [json.loads(x) for x in server.log[start:].splitlines() if x.startswith("{")]
        found = [x["status"] for x in lines if x["path"] == path]
        if len(found) >= count:
            return found
        time.sleep(0.05)
    raise AssertionError(server.log[start:])


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "localhost"])
def test_pages_of_other_sites_and_ports(browser, server, other_port, host):
    page, start = browser.new_page(), len(server.log)
    page.goto(f"http://{host}:{other_port}/")
    assert statuses_of(server, "/predict", 1, start) == [403]  # of the frame, whose origin is null
    for number, mode in enumerate(("no-cors", "cors"), start=2):
        assert page.evaluate(CALL, [server.url, mode, "text/plain"]) <= 0
        assert statuses_of(server, "/predict", number, start) == [403] * number
    assert page.evaluate(CALL, [server.url, "cors", "application/json"]) == -1
    with page.expect_navigation():
        page.evaluate("document.forms[0].submit()")
    assert f"Pages of http://{host}:{other_port} may not call" in page.inner_text("body")
    assert {*statuses_of(server, "/predict", 4, start)} == {403}
    page.goto(f"http://{host}:{other_port}/")
    page.get_by_role("link").click()
    page.wait_for_selector("details")
    page.close()


def test_other_names_for_this_machine(browser, server):
    page = browser.new_page()
    page.goto(f"http://evil.example:{server.port}/")
    assert "has no host evil.example" in page.inner_text("body")
    for name in ("localhost", "x.localhost"):
        page.goto(f"http://{name}:{server.port}/")
        page.wait_for_selector("textarea")
        assert page.evaluate(CALL, ["", "same-origin", "text/plain"]) == 200
    page.close()
