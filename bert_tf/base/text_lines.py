"""Splits text files into lines and decodes them, with error messages that name the line."""

import functools
import io
import os
from collections.abc import Iterable, Iterator
from typing import Any

from bert_tf.base.errors import Place, UserError

# Size limit of a line, and of small files. The corpus text8 has a single line of 95 MB.
MAX_BYTES = 1 << 27
# First bytes of files that are not plain text: documents, archives, tables of other programs.
_OTHER_FILES = (b"%PDF", b"{\\rtf", b"PK\3\4", b"PAR1", b"ARROW1", b"\xff\xff\xff\xff", b"<?xml")
_OTHER_FILES += (b"\xef\xbb\xbf<?xml", b"version https://git-lfs", b"@relation ", b"@RELATION ")
_OTHER_FILES += (
    b"<!DOCTYPE html",
    b"<!doctype html",
    b"<html",
    b"$FL2",
    b"$FL3",
    b"BZh",
    b"\xfd7zXZ",
    b"(\xb5/\xfd",
)


def split(name: str, file: Any, max_bytes: int = MAX_BYTES) -> Iterator[bytes]:
    """Yields a file's lines, with line breaks; raises a UserError if one exceeds `max_bytes`."""
    read_line = functools.partial(file.readline, max_bytes + 1)
    # TensorFlow's remote files cannot read part of a line.
    lines = iter(read_line, b"") if isinstance(file, io.IOBase) else iter(file)
    for line_number, line in enumerate(lines, start=1):
        if len(line) > max_bytes:
            problem = f"the line has more than {max_bytes >> 20} MB"
            raise UserError(problem, at=Place(name, line_number))
        yield line


def decode(name: str, lines: Iterable[bytes]) -> Iterator[str]:
    """Decodes lines from UTF-8, and keeps line breaks; `name` is the file in error messages."""
    for line_number, raw in enumerate(lines, start=1):
        place, is_utf16 = Place(name, line_number), raw.startswith((b"\xff\xfe", b"\xfe\xff"))
        is_other = line_number == 1 and raw.startswith(_OTHER_FILES)
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            byte = f"byte 0x{raw[error.start]:02x} at position {error.start + 1}"
            # Latin-1 has control characters where Windows-1252 has quotes, dashes and the euro.
            command = f"iconv -f {'utf-16' if is_utf16 else 'windows-1252'} -t utf-8"
            if not is_other and (is_utf16 or b"\0" not in raw):
                fix = f"Convert it, for instance with {command} {os.path.basename(name)}"
                raise UserError(f"the file is not UTF-8 ({byte})", at=place, fix=fix) from error
            is_other = True
        if is_other:
            raise UserError(f"this is not a text file: {raw[:20]!r}", at=place)
        yield text


def read(name: str, file: Any, max_bytes: int = MAX_BYTES) -> Iterator[str]:
    """Yields a file's lines as `files.read_lines` does; `name` is the file in error messages."""
    for line in decode(name, split(name, file, max_bytes)):
        text = line.rstrip("\n").replace("\r", "")
        # CRs after the last LF are not a line.
        if text or line.endswith("\n"):
            yield text
