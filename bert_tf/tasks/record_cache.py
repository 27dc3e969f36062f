"""Which records lie in a folder and what they were made of, so that they are not made again."""

import hashlib
import json
import os
from collections.abc import Iterable
from typing import Any

from bert_tf import files
from bert_tf.errors import UserError

MANIFEST = "records.json"
# To be raised when the same examples become other records.
_FORMAT = 1


def fingerprint(*settings: Any, examples: Iterable[Any]) -> str:
    """A key of all that records depend on.

    Args:
        *settings: with a `repr` that says all of them.
        examples: the same.
    """
    digest = hashlib.blake2b(repr((_FORMAT, *settings)).encode(errors="surrogatepass"))
    for example in examples:
        digest.update(repr(example).encode(errors="surrogatepass"))
    return digest.hexdigest()[:32]


class RecordCache:
    """The records of a folder.

    A file that somebody has written anew since then does not count, by its size and time.

    Args:
        folder: with the records.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._path = os.path.join(folder, MANIFEST)

    def find(self, name: str, key: str) -> dict[str, Any] | None:
        """What `note` was told of a file; None if it is not there, or was made of something else.

        Args:
            name: of the file.
            key: of what it is to be made of, see `fingerprint`.
        """
        path = os.path.join(self._folder, name)
        found = self._read().get(name)
        if not isinstance(found, dict) or found.get("key") != key or not files.exists(path):
            return None
        return (
            found.get("about") if found.get("stamp") == list(files.size_and_mtime(path)) else None
        )

    def note(self, name: str, key: str, about: dict[str, Any]) -> None:
        """Remembers a file that was just written.

        Args:
            name: of the file.
            key: of what it was made of.
            about: it, for JSON.

        Raises:
            UserError: it cannot be written down.
        """
        stamp = files.size_and_mtime(os.path.join(self._folder, name))
        manifest = {**self._read(), name: {"key": key, "stamp": stamp, "about": about}}
        files.write_text(self._path, json.dumps(manifest, indent=1) + "\n")

    def _read(self) -> dict[str, Any]:
        if not files.exists(self._path):
            return {}
        try:
            manifest = json.loads(files.read_text(self._path))
        except (UserError, ValueError):
            # Records are made anew, that is all.
            return {}
        return manifest if isinstance(manifest, dict) else {}
