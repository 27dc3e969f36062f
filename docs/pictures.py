"""Draws the pictures of README.md and docs/.

usage: python docs/pictures.py [NAME ...]

NAME is the path of a picture; by default, all of `PICTURES` are drawn, which takes a minute. A test
fails if a picture shows something else than the programs print or plot today.
"""

import functools
import io
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import escape

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from PIL import Image, PngImagePlugin

from benchmarks import tables

ROOT = Path(__file__).resolve().parents[1]
DEMO_COMMAND = ("examples/reviews/demo.py",)
# The command of "From the command line" in the README, without its evaluations.
_TRAIN_COMMAND = (
    *("run_classifier.py", "--task_name=tsv", "--data_dir=examples/reviews"),
    *("--text_column=text", "--label_column=label", "--do_train=true", "--do_eval=true"),
    *("--max_seq_length=48", "--train_batch_size=16", "--learning_rate=3e-4"),
    *("--num_train_epochs=20", "--init_checkpoint=examples/small_bert"),
)

# A browser's window, in pixels.
_REPORT_SIZE = (1140, 1400)
_PAGE_SIZE = (760, 545)
# A terminal, in characters and in pixels.
_COLUMNS = 100
_CHARACTER_WIDTH, _LINE_HEIGHT, _MARGIN = 8.4, 19, 16
_WRAPPER = textwrap.TextWrapper(_COLUMNS, drop_whitespace=False, break_on_hyphens=False)
_TEXT = "{http://www.w3.org/2000/svg}text"


def run(*command: str) -> str:
    """Runs a Python program in the root of the repository; returns what it prints."""
    result = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if result.returncode:
        raise SystemExit(result.stdout)
    return result.stdout


def draw_demo() -> bytes:
    """Draws the output of `make demo` in a terminal, as SVG."""
    return draw_terminal("make demo", demo_lines(run(*DEMO_COMMAND)))


@functools.cache
def training_files() -> Mapping[str, bytes]:
    """Fine-tunes a model on the reviews; returns its plot and its report by file name."""
    with tempfile.TemporaryDirectory() as folder:
        run(*_TRAIN_COMMAND, "--eval_every=1epoch", f"--output_dir={folder}/reviews_output")
        output = Path(folder, "reviews_output")
        return {
            name: (output / name).read_bytes() for name in ("training_curve.png", "report.html")
        }


def draw_report() -> bytes:
    """Takes a screenshot of the top of a report, as PNG, with its `headings` as a description."""
    page, browser = training_files()["report.html"], shutil.which("chromium")
    if not browser:
        raise SystemExit("docs/report.png needs the program chromium")
    with tempfile.TemporaryDirectory() as folder:
        path, picture = Path(folder, "report.html"), Path(folder, "report.png")
        path.write_bytes(page)
        size = f"--window-size={_REPORT_SIZE[0]},{_REPORT_SIZE[1]}"
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", size]
        flags += [f"--user-data-dir={folder}/profile", f"--screenshot={picture}", path.as_uri()]
        subprocess.run([browser, *flags], check=True, capture_output=True)
        image = Image.open(picture).convert("P", palette=Image.Palette.ADAPTIVE, colors=64)
    info, buffer = PngImagePlugin.PngInfo(), io.BytesIO()
    info.add_text("Description", headings(page.decode()))
    image.save(buffer, "PNG", pnginfo=info, optimize=True)
    return buffer.getvalue()


def headings(page: str) -> str:
    """Returns the headings of a report, and of its tables, a line each."""
    return "\n".join(re.findall(r"<(?:h\d|th)>(.*?)</", page))


def draw_server_page() -> bytes:
    """Takes a screenshot of the page of serve_model.py, as PNG, described by its labels."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder:
        run(*_TRAIN_COMMAND, f"--output_dir={folder}/reviews")
        command = [sys.executable, "serve_model.py", f"--model_dir={folder}/reviews", "--port=0"]
        server = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        with server, sync_playwright() as session:
            lines = iter(server.stderr or ())
            url = next(filter(None, (re.search(r"http://\S+", line) for line in lines)))[0]
            next(line for line in lines if "ready after" in line)
            path = shutil.which("chromium")
            browser = session.chromium.launch(executable_path=path, args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": _PAGE_SIZE[0], "height": _PAGE_SIZE[1]})
            page.goto(url)
            page.click("text=Why?")
            page.wait_for_selector("#result mark")
            page.wait_for_selector("#result button")
            labels = page.locator("label, button").all_inner_texts()
            image = Image.open(io.BytesIO(page.screenshot()))
            browser.close()
            server.terminate()
    info, buffer = PngImagePlugin.PngInfo(), io.BytesIO()
    info.add_text("Description", "\n".join(label.split("\n")[0] for label in labels))
    image.convert("P", palette=Image.Palette.ADAPTIVE, colors=64).save(
        buffer, "PNG", pnginfo=info, optimize=True
    )
    return buffer.getvalue()


PICTURES: Mapping[str, Callable[[], bytes]] = {
    "docs/demo.svg": draw_demo,
    "docs/training_curve.png": lambda: training_files()["training_curve.png"],
    "docs/report.png": draw_report,
    "docs/server_page.png": draw_server_page,
    "docs/speed.png": tables.plot,
}


def demo_lines(output: str) -> list[str]:
    """Returns the lines of the demo's output, with the last state of its progress bar."""
    # subprocess turns the \r between the states of a progress bar into \n.
    output = re.sub(r"^train: .*\n(?=train: )", "", output, flags=re.M)
    return ["$ make demo", *re.sub(r"\n+", "\n", output.strip()).split("\n")]


def shape(lines: list[str]) -> list[str]:
    """Masks what differs between machines and runs: numbers, bars, and which texts are shown."""
    text = re.sub(r"\|#* *\|", "|BAR|", "\n".join(lines))
    text = re.sub(r"\d[\d,.:]*(e-?\d+)?", "0", text)
    text = re.sub(r"(?<=0%  ).*", "TEXT", text)
    return re.sub(r" +", " ", text).split("\n")


def draw_terminal(title: str, lines: list[str]) -> bytes:
    """Draws lines in a terminal window, as SVG; longer lines wrap."""
    texts, row = [], 0
    for line in lines:
        parts = _WRAPPER.wrap(line) or [""]
        bold = ' class="bold"' if line.startswith("$") else ""
        spans = ""
        for part in parts:
            row += 1
            y = _MARGIN + row * _LINE_HEIGHT
            # Browsers' monospaced fonts differ in width.
            width = f'textLength="{len(part) * _CHARACTER_WIDTH:.1f}"' if part else ""
            content = escape(part.replace(" ", "\N{NO-BREAK SPACE}"))
            spans += f'<tspan x="{_MARGIN}" y="{y}" {width}>{content}</tspan>'
        texts.append(f"<text{bold}>{spans}</text>")
    width = round(2 * _MARGIN + _COLUMNS * _CHARACTER_WIDTH)
    height = row * _LINE_HEIGHT + 2 * _MARGIN
    size = f'viewBox="0 0 {width} {height}" width="{width}"'
    svg = f"""<svg xmlns="http://www.w3.org/2000/svg" {size}>
<style>
text {{ font: 14px monospace; fill: #c5c8c6 }}
.bold {{ font-weight: bold; fill: #ffffff }}
</style>
<rect width="{width}" height="{height}" rx="8" fill="#292929"/>
<title>{escape(title)}</title>
{chr(10).join(texts)}
</svg>
"""
    return svg.encode()


def terminal_lines(svg: bytes) -> list[str]:
    """Returns the lines that `draw_terminal` drew."""
    texts = ElementTree.fromstring(svg).iter(_TEXT)
    return ["".join(text.itertext()).replace("\N{NO-BREAK SPACE}", " ") for text in texts]


def main() -> None:
    """Draws the pictures."""
    for name in sys.argv[1:] or PICTURES:
        (ROOT / name).write_bytes(PICTURES[name]())
        print(f"Drew {name}")


if __name__ == "__main__":
    main()
