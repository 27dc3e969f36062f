"""An estimator for sentence vectors."""

import os
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from bert_tf.api.estimator import Estimator
from bert_tf.api.predictor import Predictor
from bert_tf.api.rows import Rows, text_items
from bert_tf.base.errors import UserError, telling_once, warn
from bert_tf.checkpoints.run_folder import RunFolder
from bert_tf.data import array_ops
from bert_tf.finetuning.encoder import vector_spec
from bert_tf.options.declare import DEVICES, MODEL, PATH, ROWS, DefaultInt, DefaultStr
from bert_tf.options.shared import EngineOptions, ModelOptions
from bert_tf.tasks.feature_extraction.options import ExtractionOptions


class SentenceEncoder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):
    """Computes the vectors of texts, and trains them as `run_embeddings.py` does.

    Without `fit`, the vectors are those of `init_checkpoint`: as a folder of sentence-transformers
    or `run_embeddings.py` declares them, or else with `pooling` and `normalize`; those that are
    passed to `load` count, too. For arguments and `history`, see `TextClassifier`.

    Example:
        encoder = SentenceEncoder("uncased_L-12_H-768_A-12", max_seq_length=64)
        encoder.fit(["What is a kiln?", ...], ["A kiln is an oven for clay.", ...])
        encoder.similarity(["Where is clay fired?"], ["A kiln is an oven.", "Soup is hot."])

    In scikit-learn's pipelines, `transform` is `encode`, and fitting a pipeline with a step after
    the encoder does not train it: the pipeline's labels are not texts that match.
    """

    _script = "run_embeddings"
    _data_flags = ("score_range", "mix_with")
    # Unlike these defaults, values that were passed are not left to the model's folder.
    _vectors: ClassVar = {"pooling": DefaultStr("mean"), "normalize": DefaultInt(False)}
    _defaults: ClassVar = {**Estimator._defaults, **_vectors}

    def fit(self, anchors: Any, positives: Any, validation: Any = None, **flags: Any) -> Any:
        """Trains the encoder from `init_checkpoint`.

        Args:
            anchors: texts, such as queries; or, with scores, pairs of texts.
            positives: a text that matches each anchor, or a list of such a text and of texts that
                do not match; or, with `loss="cosent"` or "cosine", scores of the pairs. None, as
                from a pipeline that is fitted without labels, leaves the encoder as it is.
            validation: (anchors, positives) to evaluate on, see `TextClassifier.fit`.
            flags: flags for this call only.

        Returns:
            The encoder itself.

        Raises:
            UserError: texts or flags are invalid. An earlier model remains.
        """
        if positives is None:
            return self
        return super().fit(anchors, positives, validation, **flags)

    def __sklearn_is_fitted__(self) -> bool:
        return True  # Without `fit`, the vectors are those of `init_checkpoint`.

    def encode(self, texts: Any) -> np.ndarray:
        """Returns the vectors of texts, float32 [N, D], as `extract_features.py` computes them.

        A prefix of queries or passages is not added: write it before each text.
        """
        predictor, texts = self._open(), [*text_items(texts)]
        extractor: Any = predictor._predict
        num_truncated = extractor.num_truncated
        features = predictor(texts)
        if not features:
            return np.zeros((0, extractor.size), np.float32)
        prefixes = tuple(filter(None, (self.query_prefix, self.passage_prefix)))
        if prefixes and not any(str(text).startswith(prefixes) for text in texts):
            warn(f"encode adds no prefix: write {' or '.join(map(repr, prefixes))} before texts")
        extractor.warn_of_truncation(len(texts), num_truncated)
        vectors = np.stack([item.values[0] for item in features])
        _, normalize = self._requested()
        return array_ops.normalize(vectors) if normalize else vectors

    @property
    def _n_features_out(self) -> int:
        """Length of a vector, for `get_feature_names_out`."""
        return len(self._open()(["a"])[0].values[0])

    def transform(self, texts: Any) -> np.ndarray:
        """Returns `encode(texts)`, for scikit-learn's pipelines."""
        return self.encode(texts)

    def fit_transform(self, texts: Any, labels: Any = None) -> np.ndarray:
        """Returns `encode(texts)` without training; labels are ignored, for pipelines."""
        return self.encode(texts)

    def similarity(self, texts: Any, others: Any) -> np.ndarray:
        """Returns the cosine of each text and each of N others, float32 [M, N].

        Instead of texts, pass their vectors, float32 [M, D] or [N, D], if you have them.
        """

        def normalized(items: Any) -> np.ndarray:
            is_vectors = isinstance(items, np.ndarray) and items.dtype.kind == "f"
            return array_ops.normalize(items if is_vectors else self.encode(items))

        left, right = normalized(texts), normalized(others)
        if left.ndim != 2 or left.shape[1:] != right.shape[1:]:
            received = f"{list(left.shape)} and {list(right.shape)}"
            raise UserError(f"expected vectors [M, D] and [N, D]. Received: {received}")
        return left @ right.T

    def _to_row(self, text: Any, label: Any, rows: Rows) -> dict[str, Any]:
        is_pair = isinstance(text, list | tuple)
        rows.kinds.add("score" if is_pair else "match")
        is_empty = isinstance(label, list | tuple) and not label
        is_valid = is_pair == isinstance(label, Real) and len(rows.kinds - {"negatives"}) == 1
        if not is_valid or is_empty or (is_pair and len(text) != 2):
            expected = "a text and texts, the first of which matches it, or a pair and its score"
            received = f"{text!r:.40}, {label!r:.40}"
            raise UserError(f"expected {expected}. Received: {received}", at=rows.place)
        if is_pair:
            return dict(zip(("anchor", "positive", "score"), (*text, label), strict=True))
        positive, *negatives = label if isinstance(label, list | tuple) else [label]
        rows.kinds |= {"negatives"} if negatives else set()
        return {"anchor": text, "positive": positive, "negatives": negatives}

    def _run_flags(self, rows: Rows) -> dict[str, Any]:
        columns = {"score": "score_column", "negatives": "negative_columns"}
        others = {flag: name for name, flag in columns.items() if name in rows.kinds}
        return {"anchor_column": "anchor", "positive_column": "positive", **others}

    def _requested(self) -> list[Any]:
        """Returns the pooling and the normalization that were passed, or else their defaults."""
        passed = self._loaded_with if hasattr(self, "_files") else vars(self)
        return [passed.get(name, default) for name, default in self._vectors.items()]

    def _open(self) -> Predictor:
        """Opens the model that `fit` or `load` left or, without one, `init_checkpoint`."""
        is_trained = hasattr(self, "_files")
        if not (is_trained or self.init_checkpoint):
            raise UserError("Pass the folder of a model as init_checkpoint")
        pooling, normalize = self._requested()
        flags = {"batch_size": self.eval_batch_size, "layers": "-1"}
        flags |= {name: getattr(self, name) for name in EngineOptions.names(DEVICES)}
        if not is_trained:
            flags |= {name: getattr(self, name) for name in ModelOptions.names(ROWS | MODEL | PATH)}
        key, old = (flags, pooling, normalize), getattr(self, "_predictor", None)
        if old is None or old[0] != key:
            with telling_once():
                self._predictor = key, self._load(is_trained, flags, pooling, normalize)
        return self._predictor[1]

    def _load(self, is_trained: bool, flags: Any, pooling: str, normalize: Any) -> Predictor:
        follows = isinstance(pooling, DefaultStr)
        if is_trained:
            is_normalized = self._run["flags"].get("normalize")
        else:
            folder = RunFolder.of(os.path.expanduser(os.fspath(self.init_checkpoint)))
            spec = vector_spec(folder, "auto" if follows else pooling, pooling)
            follows, is_normalized = spec.is_declared, spec.normalize
        if follows and is_normalized and not (normalize or isinstance(normalize, DefaultInt)):
            raise UserError("The model declares vectors of length 1: for others, also pass pooling")
        flags = {**flags, "pooling": "auto" if follows else pooling}
        if is_trained:
            return self._open_copy("extract_features", **flags)
        return Predictor(ExtractionOptions(**flags))
