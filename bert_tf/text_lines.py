"""Splits text files into lines and decodes them, with error messages that name the line."""

import functools
import io
import os
from collections.abc import Iterable, Iterator
from typing import Any

from bert_tf.errors import UserError

# Size limit of a line, and of small files. The corpus text8 has a single line of 95 MB.
MAX_BYTES = 1 << 27


def split(name: str, file: Any, max_bytes: int = MAX_BYTES) -> Iterator[bytes]:
    """Yields a file's lines, with line breaks; raises a UserError if one exceeds `max_bytes`."""
    read_line = functools.partial(file.readline, max_bytes + 1)
    # TensorFlow's remote files cannot read part of a line.
    lines = iter(read_line, b"") if isinstance(file, io.IOBase) else iter(file)
    for number, line in enumerate(lines, start=1):
        if len(line) > max_bytes:
            limit = f"{max_bytes >> 20} MB"
            raise UserError(f"{name}:{number}: the line has more than {limit}. Is it a text file?")
        yield line


def decode(name: str, lines: Iterable[bytes]) -> Iterator[str]:
    """Decodes UTF-8 lines, with line breaks; errors call the file `name`."""
    for number, raw in enumerate(lines, start=1):
        try:
            yield raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UserError(_explain_encoding(name, number, raw, error)) from error


def read(name: str, file: Any, max_bytes: int = MAX_BYTES) -> Iterator[str]:
    """Yields a file's lines as `files.read_lines` does; errors call the file `name`."""
    for line in decode(name, split(name, file, max_bytes)):
        text = line.rstrip("\n").replace("\r", "")
        # CRs after the last LF are not a line.
        if text or line.endswith("\n"):
            yield text


def _explain_encoding(path: str, number: int, raw: bytes, error: UnicodeDecodeError) -> str:
    """Returns a message that line `number` (counted from 1) with the bytes `raw` is not UTF-8."""
    if number == 1 and raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        evidence, encoding = "it begins with the byte order mark of UTF-16", "utf-16"
    elif b"\0" in raw or raw.startswith(b"%PDF"):
        return f"{path}:{number}: this is not a text file: {raw[:20]!r}"
    else:
        evidence = f"byte 0x{raw[error.start]:02x} at position {error.start + 1} of the line"
        encoding = "latin-1"
    return (
        f"{path}:{number}: the file is not UTF-8 ({evidence}). Convert it, for instance with: "
        f"iconv -f {encoding} -t utf-8 {os.path.basename(path)}"
    )
