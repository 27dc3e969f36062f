"""Stores fingerprints of the inputs of record files, so that the files can be reused."""

import hashlib
import json
import os
from collections.abc import Iterable
from typing import Any

from bert_tf import files
from bert_tf.errors import UserError

MANIFEST = "records.json"
# Increment this when the same examples start to give different records.
_FORMAT_VERSION = 2
_FINGERPRINT_VERSION = 1


def fingerprint(*settings: Any, examples: Iterable[Any] = ()) -> str:
    """Returns a digest of the `repr` of the settings and the examples."""
    digest = hashlib.blake2b(repr((_FINGERPRINT_VERSION, *settings)).encode(errors="surrogatepass"))
    for example in examples:
        digest.update(repr(example).encode(errors="surrogatepass"))
    return digest.hexdigest()[:32]


def read_stats(path: str, key: str) -> dict[str, Any] | None:
    """Returns a record file's statistics; None if its inputs differ or it was modified.

    `key` is the `fingerprint` of the inputs.
    """
    entry = _read_manifest(path).get(os.path.basename(path))
    if not isinstance(entry, dict) or entry.get("key") != f"{_FORMAT_VERSION} {key}":
        return None
    if not files.exists(path) or entry.get("stamp") != list(files.size_and_mtime(path)):
        return None
    return entry.get("about")


def write_stats(path: str, key: str, stats: dict[str, Any]) -> None:
    """Stores the statistics and the key of a record file that was just written."""
    folder, name = os.path.split(path)
    entry = {"key": f"{_FORMAT_VERSION} {key}", "stamp": files.size_and_mtime(path), "about": stats}
    text = json.dumps({**_read_manifest(path), name: entry}, indent=1) + "\n"
    files.write_text(os.path.join(folder, MANIFEST), text)


def _read_manifest(path: str) -> dict[str, Any]:
    try:
        return files.read_json(os.path.join(os.path.dirname(path), MANIFEST))
    except UserError:
        return {}
