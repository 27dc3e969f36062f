"""The index: a folder with texts and their vectors, which are searched in blocks.

`vectors.npy`: float32 [N, D], of length 1; `texts.jsonl`: a line with `_id` and `text` for each;
`offsets.npy`: int64 [N + 1], where each line begins; `index.json`: what the vectors depend on, how
many there are yet, and checksums. Shapes: N texts, Q queries, K results, D size of a vector.
"""

import array
import hashlib
import io
import itertools
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any, NamedTuple

import numpy as np

from bert_tf.base import files, locks
from bert_tf.base.errors import UserError, counted, note, reason, warn
from bert_tf.base.progress import bar
from bert_tf.search.encoder import SearchEncoder
from bert_tf.search.options import SearchOptions
from bert_tf.search.texts import Identified, read_texts

_VERSION = 1
_TYPES = {"version": int, "model": dict, "texts": str, "num_texts": int, "num_encoded": int}
_TYPES |= {"checksums": list, "input": dict}
FILES = "index.json", "vectors.npy", "texts.jsonl", "offsets.npy"
_MANIFEST, _VECTORS, _TEXTS, _OFFSETS = FILES
_OTHER = "Pass another --index_dir"
# Number of texts in a chunk, with a checksum. An interrupted command continues after whole ones.
_CHUNK = 4096
# Numbers in a block of vectors.
_BLOCK = 1 << 22
# Scores have six decimals: vectors of the same text in different batches may differ in the seventh.
# The margin exceeds the errors of the float32 products that select candidates.
_DECIMALS, _MARGIN = 6, 1e-4


class Found(NamedTuple):
    """The texts that were found for a query, best first."""

    rows: np.ndarray  # int64 [K]
    scores: np.ndarray  # float64 [K]


class Index:
    """A complete index; UserError if there is none in the folder, or it is damaged.

    Attributes:
        vectors: float32 [N, D], mapped from the file.
    """

    def __init__(self, folder: str) -> None:
        self._folder, self._manifest = folder, _read_manifest(folder)
        done, total = (self._manifest.get(x, 0) for x in ("num_encoded", "num_texts"))
        if not self._manifest or done < total:
            found = f"only {done:,} of {total:,} texts have vectors" if total else "no index"
            raise UserError(found, at=folder, fix="Pass --input_file to build it")
        try:
            self.vectors = np.load(os.path.join(folder, _VECTORS), mmap_mode="r")
            self._offsets = np.load(os.path.join(folder, _OFFSETS), mmap_mode="r")
            self._texts = np.memmap(os.path.join(folder, _TEXTS), np.uint8, "r")
            starts, ends = self._offsets[:-1], self._offsets[1:]
            sizes = len(self.vectors), len(ends), starts[0], ends[-1]
            is_whole = self.vectors.dtype == "<f4" and sizes == (total, total, 0, len(self._texts))
            if not is_whole or not (starts < ends).all():
                raise ValueError("other sizes")
            digest = hashlib.blake2b(self._texts.data, digest_size=16).hexdigest()
            # A line of JSON has no other line break than that at its end.
            if digest != self._manifest["texts"] or (self._texts[ends - 1] != ord("\n")).any():
                raise ValueError("other texts")
        except Exception as error:  # NumPy raises many kinds for a damaged header
            raise _damaged(folder, reason(error)) from None
        self._is_checked = False
        noted = dict(self._manifest["input"])
        checksum, now = noted.pop("checksum", None), _describe_input(str(noted.get("path", "")))
        # A file that was only copied or touched is the same.
        if now and now != noted and _checksum(now["path"]) != checksum:
            warn(f"{noted['path']} has changed since the index was built", at=folder)

    def _blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yields the first row and the vectors of each block; checks them the first time."""
        size = max(1, _BLOCK // (self.vectors.shape[1] * _CHUNK)) * _CHUNK
        for start in range(0, len(self.vectors), size):
            block = np.asarray(self.vectors[start : start + size])
            for row in () if self._is_checked else range(0, len(block), _CHUNK):
                chunk = block[row : row + _CHUNK]
                checksum = self._manifest["checksums"][(start + row) // _CHUNK]
                if checksum:
                    is_intact = zlib.crc32(chunk.data) == checksum
                else:  # version 1.1 built the index
                    is_intact = np.allclose(np.einsum("nd,nd->n", chunk, chunk), 1, atol=1e-3)
                if not is_intact:
                    raise _damaged(self._folder, f"the vectors from row {start + row:,} on")
            yield start, block
        self._is_checked = True

    def require_model(self, model: Mapping[str, Any]) -> None:
        """Raises a UserError unless queries get vectors of the model that texts got theirs of."""
        _require_same(self._folder, self._manifest["model"], model)

    def text(self, row: int) -> tuple[str, str]:
        """Returns id and text of a row."""
        line = json.loads(bytes(self._texts[self._offsets[row] : self._offsets[row + 1]]))
        return line["_id"], line["text"]

    def search(self, queries: np.ndarray, top_k: int) -> list[Found]:
        """Finds the `top_k` texts with the highest dot products for each vector in [Q, D].

        The search is exact, to six decimals; texts with equal scores are in their order.
        """
        found = [Found(np.zeros(0, np.int64), np.zeros(0))] * len(queries)
        for start, block in self._blocks():
            for query, scores in enumerate(queries @ block.T):
                lowest = found[query].scores[-1] if len(found[query].rows) == top_k else -np.inf
                rows = np.flatnonzero(scores >= lowest - _MARGIN)
                if len(rows) > top_k:
                    lowest = np.partition(scores[rows], -top_k)[-top_k]
                    rows = rows[scores[rows] >= lowest - _MARGIN]
                # Unlike a product of matrices, this sum does not depend on the place in the block.
                exact = (block[rows].astype(np.float64) * queries[query]).sum(axis=1)
                all_scores = np.append(found[query].scores, exact.round(_DECIMALS))
                best = np.argsort(-all_scores, kind="stable")[:top_k]
                all_rows = np.append(found[query].rows, start + rows)
                found[query] = Found(all_rows[best], all_scores[best])
        return found


def build(options: SearchOptions) -> None:
    """Builds the index of `input_file`, or continues where the same command was interrupted.

    Raises:
        UserError: the folder has the index of other texts or another model; or texts or model are
            invalid.
    """
    folder = options.index_dir or ""
    path, columns = options.input_file or "", {"text": options.text_column, "id": options.id_column}
    if files.is_remote(folder):
        raise UserError("--index_dir must be a local folder", at=folder)
    with locks.exclusive(locks.lock_path(folder), f"--index_dir={folder}"):
        old = _read_manifest(folder)
        files.make_dirs(folder)
        source = _describe_input(path)
        source |= {"checksum": _checksum(source["path"])} if source else {}
        with files.open_atomically(os.path.join(folder, _TEXTS)) as file:
            offsets, digest = _write_texts(read_texts(path, columns, **options.layout()), file)
            total = len(offsets) - 1
            encoder = SearchEncoder(options, total)
            new = {"version": _VERSION, "num_texts": total, "texts": digest}
            new |= {"model": encoder.describe()}
            if old and old["num_encoded"] == old["num_texts"]:
                _require_same(folder, old["model"], new["model"])
                if old["texts"] != digest:
                    raise UserError("the index of other texts or ids", at=folder, fix=_OTHER)
        content = io.BytesIO()
        np.save(content, np.array(offsets, np.int64))
        files.write_bytes(os.path.join(folder, _OFFSETS), content.getvalue())
        done = old["num_encoded"] if old and {**old, **new} == old else 0
        new |= {"input": source, "checksums": old["checksums"] if done else []}
        if 0 < done < total:
            note(f"Continuing: {done:,} of {counted(total, 'text')} have vectors")
        try:
            _write_vectors(encoder, new, done, folder)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("To continue, run the same command again.") from None
    note(f"Index of {counted(total, 'text')}: {folder}")
    encoder.warn_of_truncation(total)


def _write_texts(texts: Iterable[Identified], file: IO[bytes]) -> tuple[array.array, str]:
    """Writes texts; returns the offsets of their lines, and a digest."""
    digest, offsets = hashlib.blake2b(digest_size=16), array.array("q", [0])
    for _, key, text in texts:
        line = json.dumps({"_id": key, "text": text}, ensure_ascii=False).encode() + b"\n"
        file.write(line)
        digest.update(line)
        offsets.append(offsets[-1] + len(line))
    return offsets, digest.hexdigest()


def _write_vectors(
    encoder: SearchEncoder, manifest: dict[str, Any], done: int, folder: str
) -> None:
    """Computes vectors in chunks, from text `done` on, and notes in `index.json` how many exist."""

    def note(num_encoded: int) -> None:
        content = json.dumps({**manifest, "num_encoded": num_encoded}, indent=1)
        files.write_text(os.path.join(folder, _MANIFEST), f"{content}\n")

    path, total = os.path.join(folder, _VECTORS), manifest["num_texts"]
    note(done)  # before vectors of another model are overwritten
    header = io.BytesIO()
    layout = {"descr": "<f4", "fortran_order": False, "shape": (total, encoder.size)}
    np.lib.format.write_array_header_1_0(header, layout)
    with (
        files.wrap_errors("write", path),
        open(path, "r+b" if done else "wb") as file,
        open(os.path.join(folder, _TEXTS), "rb") as lines,
        bar(total, "texts", done) as progress,
    ):
        file.write(header.getvalue())
        file.truncate(file.seek(4 * encoder.size * done, os.SEEK_CUR))
        texts = (json.loads(line)["text"] for line in itertools.islice(lines, done, None))
        while chunk := [*itertools.islice(texts, _CHUNK)]:
            vectors = encoder(chunk, start=done, total=total).astype("<f4").tobytes()
            done += len(chunk)
            manifest["checksums"].append(zlib.crc32(vectors))
            file.write(vectors)
            file.flush()
            os.fsync(file.fileno())
            note(done)
            progress.update(len(chunk))


def _read_manifest(folder: str) -> dict[str, Any]:
    """Returns the content of `index.json`; {} if it does not exist."""
    path = os.path.join(folder, _MANIFEST)
    if not files.exists(path):
        return {}
    manifest = {"checksums": [], "input": {}, **files.read_json(path)}
    are_valid = all(isinstance(manifest.get(name), kind) for name, kind in _TYPES.items())
    are_valid = are_valid and 0 <= manifest["num_encoded"] <= manifest["num_texts"]
    if not (are_valid and manifest["version"] <= _VERSION):
        raise UserError("no index, or one of a newer version of bert_tf", at=path, fix=_OTHER)
    num_chunks = -(-manifest["num_encoded"] // _CHUNK)
    manifest["checksums"] = [*manifest["checksums"], *[0] * num_chunks][:num_chunks]  # 0: unknown
    return manifest


def _describe_input(path: str) -> dict[str, Any]:
    """Identifies a local file; {} for any other input."""
    if not os.path.isfile(path):
        return {}
    return {"path": files.resolve(path), "size_and_mtime_ns": [*files.size_and_mtime(path)]}


def _checksum(path: str) -> int:
    checksum = 0
    with files.open_binary(path) as file:
        while block := file.read(1 << 20):
            checksum = zlib.crc32(block, checksum)
    return checksum


def _require_same(folder: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    digests = ("weights", "vocabulary", "configuration")
    changed = [
        name if name in digests else f"{name} ({old.get(name)!r}, now {new[name]!r})"
        for name in new
        if old.get(name) != new[name]
    ]
    if changed:
        raise UserError(f"vectors of another model: {', '.join(changed)}", at=folder, fix=_OTHER)


def _damaged(folder: str, problem: str) -> UserError:
    return UserError(f"damaged ({problem})", at=folder, fix="Remove it, and build it again")
