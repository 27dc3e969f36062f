"""Vectors of texts and queries."""

import dataclasses
import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf.base.errors import UserError, note, shortened, warn
from bert_tf.base.progress import log
from bert_tf.checkpoints import formats
from bert_tf.checkpoints.formats.sentence_transformers import check_encoder, declared_vectors
from bert_tf.checkpoints.model import training_state
from bert_tf.checkpoints.run_folder import RunFolder, fingerprint
from bert_tf.data import array_ops
from bert_tf.data.texts import Text, check_prefix, require_room
from bert_tf.options.declare import DATA, DEVICES, MODEL, PATH, ROWS
from bert_tf.search.options import SearchOptions
from bert_tf.tasks.feature_extraction.extraction import Extractor
from bert_tf.tasks.feature_extraction.options import ExtractionOptions


class Encoder:
    """Computes the vectors of `extract_features.py`, scaled to length 1.

    Args:
        options: the options.
        total: expected number of texts; 0 if unknown.

    Attributes:
        extractor: computes the vectors of texts that have their prefixes.
        size: size of a vector, D.
    """

    def __init__(self, options: SearchOptions, total: int = 0) -> None:
        self._folder = RunFolder.of(options.init_checkpoint or "")
        check_encoder(self._folder)
        declared = declared_vectors(self._folder)
        if declared and declared.unsupported:
            raise UserError(f"{declared}, which is not supported", fix="Choose another encoder")
        values = options.values(ROWS | MODEL | PATH | DEVICES, without=DATA)
        shared = values.keys() & {field.name for field in dataclasses.fields(ExtractionOptions)}
        values = {name: values[name] for name in shared}
        pooling = "auto" if declared else "mean"
        self.extractor = Extractor(ExtractionOptions(**values, pooling=pooling, layers="-1"), total)
        self._prefixes = {True: options.query_prefix, False: options.passage_prefix}
        unused = declared.unused_prompts() if declared else []
        if unused and "auto" in self._prefixes.values():
            warn(
                f"{self._folder}: the prompts {shortened(unused, 5)} are not used",
                fix="Pass --query_prefix and --passage_prefix",
            )
        for is_query, prefix in self._prefixes.items():
            if prefix == "auto":
                self._prefixes[is_query] = declared.prefix(is_query) if declared else ""
            flag = "query_prefix" if is_query else "passage_prefix"
            tokens = self.extractor.tokenizer.reference.tokenize(self._prefixes[is_query])
            require_room(flag, tokens, self.extractor.options.max_seq_length)
        if any(self._prefixes.values()):
            prefixes = self._prefixes[True], self._prefixes[False]
            log.info("Prefixes: %r before each query, %r before each text", *prefixes)
        limit = self._folder.entry("flags", "max_query_length", kind=int)
        if limit and limit < self.extractor.options.max_seq_length:
            note(
                f"Queries have up to {self.extractor.options.max_seq_length} tokens: "
                f"max_query_length={limit} of training does not apply"
            )
        self._has_checked = {True: False, False: False}
        self._lower_case = bool(declared and declared.lower_case)
        num_poolings = len(self.extractor.options.pooling.split("_"))
        self.size = num_poolings * self.extractor.config.hidden_size
        if declared and declared.similarity == "dot" and not declared.normalize:
            warn(
                f"{self._folder}: these vectors are meant for dot products, but scores "
                "are cosines here"
            )

    def __call__(self, texts: Sequence[str], is_query: bool = False, **part: int) -> np.ndarray:
        """Returns the vectors of texts or queries, float32 [N, D]; `part`: see `RowBatches`."""
        if not self._has_checked[is_query]:
            self._has_checked[is_query] = True
            for problem in check_prefix(texts, self._prefixes[is_query]):
                warn(problem)
        prefixed = [Text(self._prefixes[is_query] + text) for text in texts]
        features = self.extractor.features(prefixed, **part)
        return array_ops.normalize(np.stack([item.values[0] for item in features]))

    def describe(self) -> dict[str, Any]:
        """Returns what the vectors of texts depend on, by name."""
        return {
            "weights": self._digest_weights(),
            "vocabulary": fingerprint(sorted(self.extractor.tokenizer.reference.vocab.items())),
            "configuration": fingerprint(self.extractor.config.to_json_string()),
            **self.extractor.options.values(ROWS | MODEL),
            "pooling": self.extractor.options.pooling,
            "lower_case": self._lower_case,
            "passage_prefix": self._prefixes[False],
        }

    def _digest_weights(self) -> str:
        """Returns a digest of the encoder's weights, which does not depend on the file format."""
        source = formats.find_source(self._folder.model or "")
        names = source.shapes().keys() - training_state(source.shapes())
        encoder = [n for n in names if n.startswith("bert/") and not n.startswith("bert/pooler/")]
        values = source.read(encoder)
        return fingerprint(sorted((n, hashlib.blake2b(x).hexdigest()) for n, x in values))
