"""Splits text files into lines and decodes them, with error messages that name the line."""

import functools
import io
import os
from collections.abc import Iterable, Iterator
from typing import Any

from bert_tf.base.errors import Place, UserError

# Size limit of a line, and of small files. The corpus text8 has a single line of 95 MB.
MAX_BYTES = 1 << 27
# How other files begin -> what to do with them.
_DOCUMENTS = {
    (b"%PDF", b"{\\rtf"): "Save it as plain text",
    (b"PK\3\4",): "Save it as plain text, or a spreadsheet as CSV; unpack an archive",
    (b"PAR1",): "Convert it: pandas.read_parquet(OLD).to_json(NEW, orient='records', lines=True)",
    (b"ARROW1", b"\xff\xff\xff\xff"): "Convert it: datasets.Dataset.from_file(OLD).to_json(NEW)",
    (b"<?xml", b"\xef\xbb\xbf<?xml"): "XML is not read: convert it to JSON lines or plain text",
    (b"version https://git-lfs",): "It is a pointer of Git LFS to the file: run git lfs pull",
    (b"@relation ", b"@RELATION "): "ARFF is not read: convert it to CSV or JSON lines",
    (b"$FL2", b"$FL3"): "Convert it: pandas.read_spss(OLD).to_csv(NEW, index=False)",
    (b"BZh", b"\xfd7zXZ", b"(\xb5/\xfd"): "It is compressed: unpack it, or compress it as .gz",
}


def split(name: str, file: Any, max_bytes: int = MAX_BYTES) -> Iterator[bytes]:
    """Yields a file's lines, with line breaks; raises a UserError if one exceeds `max_bytes`."""
    read_line = functools.partial(file.readline, max_bytes + 1)
    # TensorFlow's remote files cannot read part of a line.
    lines = iter(read_line, b"") if isinstance(file, io.IOBase) else iter(file)
    for line_number, line in enumerate(lines, start=1):
        if len(line) > max_bytes:
            problem = f"the line has more than {max_bytes >> 20} MB. Is this a text file?"
            raise UserError(problem, at=Place(name, line_number))
        yield line


def decode(name: str, lines: Iterable[bytes]) -> Iterator[str]:
    """Decodes UTF-8 lines, which keep their line breaks; `name` is the file in error messages."""
    for line_number, raw in enumerate(lines, start=1):
        for beginnings, advice in _DOCUMENTS.items() if line_number == 1 else ():
            if raw.startswith(beginnings):
                raise UserError(f"{name}:1: this is not a text file: {raw[:20]!r}", fix=advice)
        try:
            yield raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UserError(_explain_encoding(name, line_number, raw, error)) from error


def read(name: str, file: Any, max_bytes: int = MAX_BYTES) -> Iterator[str]:
    """Yields a file's lines as `files.read_lines` does; `name` is the file in error messages."""
    for line in decode(name, split(name, file, max_bytes)):
        text = line.rstrip("\n").replace("\r", "")
        # CRs after the last LF are not a line.
        if text or line.endswith("\n"):
            yield text


def _explain_encoding(path: str, line_number: int, raw: bytes, error: UnicodeDecodeError) -> str:
    """Returns the error message for a line that is not UTF-8; `raw` is its content."""
    if line_number == 1 and raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        evidence, encoding = "it begins with the byte order mark of UTF-16", "utf-16"
    elif b"\0" in raw:
        return f"{path}:{line_number}: this is not a text file: {raw[:20]!r}"
    else:
        evidence = f"byte 0x{raw[error.start]:02x} at position {error.start + 1} of the line"
        # Latin-1 has control characters where Windows-1252 has quotes, dashes and the euro sign.
        encoding = "windows-1252"
    command = f"iconv -f {encoding} -t utf-8 {os.path.basename(path)}"
    advice = "Convert it from its encoding, for instance, if it is a Western European text, with"
    return f"{path}:{line_number}: the file is not UTF-8 ({evidence}). {advice}: {command}"
