"""Explains predictions with integrated gradients (Sundararajan et al. 2017, arXiv:1703.01365).

Shapes: S tokens of a row, K steps, H hidden_size.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.progress import log
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.fast import tokenize_with_offsets

# Limits memory: about 2 GB for BERT-Base.
_MAX_BATCH_TOKENS = 2048
# The largest error of the sum, relative to the sum of all absolute scores, without a warning.
_MAX_ERROR = 0.05


class Explanation(NamedTuple):
    """How much each word piece of an input contributes to an output of the model.

    The output is the logit of a label, or a number of a regression in its own unit. All lists have
    an item for each word piece that the model read, in the order of the text or the two texts.

    Attributes:
        label: name of the output; empty if the model has only one, without a name.
        tokens: word pieces, without `[CLS]` and `[SEP]`.
        text_indices: 0 for pieces of the first text, 1 for those of the second.
        offsets: start and end of each piece in its text, in characters.
        scores: contributions to the output; positive ones increase it.
        difference: the output for the input minus that for an input of `[MASK]` tokens.
        completeness: by how much the sum of the scores differs from `difference`, which it
            equals in the limit of many steps.
    """

    label: str
    tokens: list[str]
    text_indices: list[int]
    offsets: list[tuple[int, int]]
    scores: list[float]
    difference: float
    completeness: float


def explain(
    model: Any,
    output: Callable[[Mapping[str, Any]], Any],
    label: str,
    row: Mapping[str, np.ndarray],
    texts: tuple[str, ...],
    tokenizer: FullTokenizer,
    steps: int,
) -> Explanation:
    """Explains an output of a model for one row, `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`.

    Args:
        model: a model that passes its inputs to a `BertModel`, its attribute `bert`.
        output: maps the model's outputs to the explained one, [B].
        label: its name.
        row: inputs of the model, [1, ...].
        texts: the text or pair of texts; the row may have fewer tokens.
        tokenizer: the model's tokenizer.
        steps: K.
    """
    length, num_b = int(row["input_mask"].sum()), max(int(row["segment_ids"].sum()) - 1, 0)
    num_a = length - 2 - (num_b + 1 if num_b else 0)
    is_token = np.zeros(length, bool)
    is_token[1 : num_a + 1] = is_token[num_a + 2 : num_a + 2 + num_b] = True
    trimmed = {name: x[:, :length] if x.ndim > 1 else x for name, x in row.items()}
    mask_id = tokenizer.vocab.get("[MASK]", 0)
    all_scores, difference = _integrate(model, output, trimmed, is_token, mask_id, steps)
    scores = all_scores[is_token]
    tokens, text_indices, offsets = [], [], []
    for index, (text, count) in enumerate(zip(texts, (num_a, num_b), strict=False)):
        text_tokens, spans = tokenize_with_offsets(tokenizer, text)
        tokens += text_tokens[:count]
        offsets += spans[:count]
        text_indices += [index] * count
    completeness = abs(float(scores.sum()) - difference)
    error = completeness / max(np.abs(scores).sum(), 1e-9)
    if error > _MAX_ERROR:
        message = "The scores are inaccurate: their sum is off by %.0f %%. Pass steps=%d"
        log.warning(message, 100 * error, 4 * steps)
    lists = tokens, text_indices, offsets, scores.tolist()
    return Explanation(label, *lists, difference, completeness)


def _integrate(
    model: Any,
    output: Callable[[Mapping[str, Any]], Any],
    row: Mapping[str, np.ndarray],
    is_token: np.ndarray,
    mask_id: int,
    steps: int,
) -> tuple[np.ndarray, float]:
    """Returns the score of each position, [S], and the difference of the outputs.

    The path of integration goes from the embeddings of `[MASK]` to those of the tokens.
    """
    table, ids = model.bert.embeddings.word_embeddings, row["input_ids"]
    words = tf.gather(table, ids)  # [1, S, H]
    baseline = tf.gather(table, np.where(is_token, mask_id, ids))
    points, weights = np.polynomial.legendre.leggauss(steps)  # for the interval from -1 to 1
    # The ends of the path have no weight, but give the difference.
    fractions = np.concatenate([[0], (points + 1) / 2, [1]]).astype(np.float32)
    weights = np.concatenate([[0], weights / 2, [0]]).astype(np.float32)
    size = max(_MAX_BATCH_TOKENS // len(is_token), 1)
    scores, outputs = np.zeros(len(is_token)), []
    for start in range(0, len(fractions), size):
        part = slice(start, start + size)
        vectors = baseline + fractions[part, None, None] * (words - baseline)
        inputs = {name: np.repeat(x, len(vectors), axis=0) for name, x in row.items()}
        with tf.GradientTape() as tape:
            tape.watch(vectors)
            values = output(model({**inputs, "word_embeddings": vectors}, training=False))
        gradients = tf.tensordot(weights[part], tape.gradient(values, vectors), 1)  # [S, H]
        scores += tf.reduce_sum((words - baseline)[0] * gradients, axis=-1).numpy()
        outputs += values.numpy().tolist()
    return scores, outputs[-1] - outputs[0]
