"""Remembers what record files were made from, so that they can be reused."""

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
    """Returns a digest of the `repr` of settings and examples."""
    digest = hashlib.blake2b(repr((1, *settings)).encode(errors="surrogatepass"))
    for example in examples:
        digest.update(repr(example).encode(errors="surrogatepass"))
    return digest.hexdigest()[:32]


def read_stats(path: str, key: str) -> dict[str, Any] | None:
    """Returns the statistics of a record file if it was made from `key` and not changed since."""
    entry = _read_manifest(path).get(os.path.basename(path))
    if not isinstance(entry, dict) or entry.get("key") != f"{_FORMAT} {key}":
        return None
    if not files.exists(path) or entry.get("stamp") != list(files.size_and_mtime(path)):
        return None
    return entry.get("about")


def write_stats(path: str, key: str, stats: dict[str, Any]) -> None:
    """Stores the statistics of a record file that was just written from `key`."""
    folder, name = os.path.split(path)
    entry = {"key": f"{_FORMAT} {key}", "stamp": files.size_and_mtime(path), "about": stats}
    text = json.dumps({**_read_manifest(path), name: entry}, indent=1) + "\n"
    files.write_text(os.path.join(folder, MANIFEST), text)


def _read_manifest(path: str) -> dict[str, Any]:
    try:
        manifest = json.loads(files.read_text(os.path.join(os.path.dirname(path), MANIFEST)))
    except (UserError, ValueError):
        return {}
    return manifest if isinstance(manifest, dict) else {}
