"""Vectors of texts and queries."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf.base.errors import note, shortened, warn
from bert_tf.checkpoints import formats
from bert_tf.checkpoints.model import training_state
from bert_tf.checkpoints.run_folder import fingerprint
from bert_tf.data import array_ops
from bert_tf.data.texts import check_prefix, require_room
from bert_tf.finetuning.encoder import Encoder, read_encoder
from bert_tf.options.declare import MODEL, ROWS
from bert_tf.options.shared import EngineOptions, ModelOptions
from bert_tf.search.options import SearchOptions


class SearchEncoder(Encoder):
    """Computes vectors of texts and queries, with their prefixes, scaled to length 1.

    Args:
        options: the options.
        total: expected number of texts; 0 if unknown.
    """

    def __init__(self, options: SearchOptions, total: int = 0) -> None:
        super().__init__(read_encoder(options, default="mean"), total=total)
        spec, folder = self.spec, str(self._folder)
        self._prefixes = {True: options.query_prefix, False: options.passage_prefix}
        if "auto" in self._prefixes.values() and (unused := spec.unused_prompts()):
            advice = "Pass --query_prefix and --passage_prefix"
            warn(f"the prompts {shortened(unused, 5)} are not used", at=folder, fix=advice)
        for is_query, prefix in self._prefixes.items():
            prefix = spec.prefix(is_query) if prefix == "auto" else prefix
            kind = "query" if is_query else "passage"
            tokens = self.tokenizer.reference.tokenize(prefix)
            require_room(f"{kind}_prefix", tokens, self.options.max_seq_length)
            self._prefixes[is_query] = prefix
            if prefix:
                note(f"Prefix of each {kind}: {prefix!r}")
        self._unchecked = {True, False}  # texts of which kinds have not been checked
        if spec.similarity == "dot" and not spec.normalize:
            warn("its vectors are for dot products, but scores are cosines here", at=folder)

    def __call__(self, texts: Sequence[str], is_query: bool = False, **part: int) -> np.ndarray:
        """Returns the vectors of texts or queries, float32 [N, D]; `part`: see `RowBatches`."""
        prefix = self._prefixes[is_query]
        for problem in check_prefix(texts, prefix) if is_query in self._unchecked else ():
            warn(problem)
        self._unchecked.discard(is_query)
        return array_ops.normalize(self.vectors([prefix + text for text in texts], **part))

    def describe(self) -> dict[str, Any]:
        """Returns what the vectors of texts depend on, by name."""
        names = ModelOptions.names(ROWS | MODEL) + EngineOptions.names(ROWS | MODEL)
        return {
            "weights": self._digest_weights(),
            "vocabulary": fingerprint(sorted(self.tokenizer.reference.vocab.items())),
            "configuration": fingerprint(self.config.to_json_string()),
            **{name: getattr(self.options, name) for name in names},
            "pooling": self.spec.pooling,
            "lower_case": self.spec.lower_case,
            "passage_prefix": self._prefixes[False],
        }

    def _digest_weights(self) -> str:
        """Returns a digest of the encoder's weights, which does not depend on the file format."""
        source = formats.find_source(self._folder.model or "")
        names = source.shapes().keys() - training_state(source.shapes())
        encoder = [n for n in names if n.startswith("bert/") and not n.startswith("bert/pooler/")]
        values = source.read(encoder)
        return fingerprint(sorted((n, hashlib.blake2b(x).hexdigest()) for n, x in values))
