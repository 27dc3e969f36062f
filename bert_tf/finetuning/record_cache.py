"""Stores fingerprints of the inputs of record files, so that the files can be reused."""

import hashlib
import json
import os
from collections.abc import Iterable
from typing import Any

from bert_tf import files
from bert_tf.errors import UserError

MANIFEST = "records.json"
# Increment this when a code change gives different records for the same examples.
_FORMAT_VERSION = 2


def fingerprint(*settings: Any, examples: Iterable[Any] = ()) -> str:
    """Returns a digest of the `repr` of the settings and the examples."""
    # Digests in existing run.json files depend on the 1.
    digest = hashlib.blake2b(repr((1, *settings)).encode(errors="surrogatepass"))
    for example in examples:
        digest.update(repr(example).encode(errors="surrogatepass"))
    return digest.hexdigest()[:32]


def read_stats(path: str, key: str) -> dict[str, Any] | None:
    """Returns the statistics of a record file that can be reused; None if it must be rewritten.

    It can be reused if `key`, the `fingerprint` of its inputs, is the same as in `write_stats`, and
    the file was not modified since then.
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
