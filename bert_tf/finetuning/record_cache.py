"""Remembers what the record files of a folder were made from, so that they can be reused."""

import hashlib
import json
import os
from collections.abc import Iterable
from typing import Any

from bert_tf import files
from bert_tf.errors import UserError

MANIFEST = "records.json"
# Raise it when the same examples become other records.
_FORMAT = 2


def fingerprint(*settings: Any, examples: Iterable[Any] = ()) -> str:
    """Returns a digest of settings and examples, by their `repr`."""
    digest = hashlib.blake2b(repr((1, *settings)).encode(errors="surrogatepass"))
    for example in examples:
        digest.update(repr(example).encode(errors="surrogatepass"))
    return digest.hexdigest()[:32]


class RecordCache:
    """The record files of a folder.

    A file that was changed since then, by its size and time, does not count.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._path = os.path.join(folder, MANIFEST)

    def find(self, name: str, key: str) -> dict[str, Any] | None:
        """Returns the statistics of a file if it exists and was made from `key`."""
        path = os.path.join(self._folder, name)
        entry = self._read().get(name)
        if not isinstance(entry, dict) or entry.get("key") != f"{_FORMAT} {key}":
            return None
        if not files.exists(path) or entry.get("stamp") != list(files.size_and_mtime(path)):
            return None
        return entry.get("about")

    def note(self, name: str, key: str, stats: dict[str, Any]) -> None:
        """Stores the statistics of a file that was just written from `key`."""
        stamp = files.size_and_mtime(os.path.join(self._folder, name))
        entry = {"key": f"{_FORMAT} {key}", "stamp": stamp, "about": stats}
        files.write_text(self._path, json.dumps({**self._read(), name: entry}, indent=1) + "\n")

    def _read(self) -> dict[str, Any]:
        if not files.exists(self._path):
            return {}
        try:
            manifest = json.loads(files.read_text(self._path))
        except (UserError, ValueError):
            # The records are written anew.
            return {}
        return manifest if isinstance(manifest, dict) else {}
