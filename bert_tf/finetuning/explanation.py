"""Integrated gradients over word embeddings (Sundararajan et al. 2017, arXiv:1703.01365).

Shapes: S tokens of a row, H hidden_size.
"""

from collections.abc import Callable, Mapping
from html import escape
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.base.errors import warn
from bert_tf.inference.row_batches import NotFinite
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.fast import tokenize_with_offsets

# Limits memory: about 2 GB for BERT-Base.
_MAX_BATCH_TOKENS = 2048


class Explanation(NamedTuple):
    """How much each word piece contributes to an output: the logit of a label, or a number.

    `str` lists the pieces with their scores, and notebooks show the texts in colors.

    Attributes:
        label: name of the output; empty for a single number.
        tokens: word pieces of the text or both texts, without `[CLS]` and `[SEP]`.
        text_indices: 0 for each piece of the first text, 1 for each of the second.
        offsets: start and end of each piece in its text.
        scores: contribution of each piece; positive ones increase the output.
        difference: the output for the input, minus the output for `[MASK]` in place of each piece.
        completeness: the error |sum(scores) - difference|; more steps make it smaller.
        texts: the text or both texts.
    """

    label: str
    tokens: list[str]
    text_indices: list[int]
    offsets: list[tuple[int, int]]
    scores: list[float]
    difference: float
    completeness: float
    texts: tuple[str, ...] = ()

    def __str__(self) -> str:
        pieces = (f"{token} {x:+.2f}" for token, x in zip(self.tokens, self.scores, strict=True))
        return f"{self.label or 'number'}: {', '.join(pieces)}"

    def _repr_html_(self) -> str:
        """Colors pieces blue if they increase the output, and red if they lower it."""
        largest = max(map(abs, self.scores), default=0) or 1
        html = f"<p>Blue pieces are for <b>{escape(self.label or 'a higher number')}</b>, "
        html += "red ones against it.</p>"
        for number, text in enumerate(self.texts):
            html, position = f'{html}<p style="white-space: pre-wrap">', 0
            pieces = zip(self.text_indices, self.offsets, self.scores, strict=True)
            for start, end, score in ((*span, x) for index, span, x in pieces if index == number):
                start = max(start, position)  # a Hangul syllable may have several pieces
                color = "42 111 219" if score > 0 else "219 60 42"
                style = f"background: rgb({color} / {abs(score) / largest * 0.7:.2f})"
                html += f'{escape(text[position:start])}<span style="{style}" title="{score:+.3f}">'
                html += f"{escape(text[start:end])}</span>"
                position = end
            html += f"{escape(text[position:])}</p>"
        return html


def explain(
    model: Any,
    output: Callable[[Any], Any],
    label: str,
    row: Mapping[str, np.ndarray],
    texts: tuple[str, ...],
    tokenizer: FullTokenizer,
    steps: int,
) -> Explanation:
    """Explains `output` of the logits, [B], for a row of `packing.pack_batch` and its texts."""
    inputs = {name: row[name][:, : row["input_mask"].sum()] for name in model.input_names}
    num_b = int(inputs["segment_ids"].sum()) - 1  # -1 for a single text
    num_a = inputs["segment_ids"].size - 3 - num_b
    is_token = np.ones_like(inputs["input_ids"], bool)
    is_token[0, [0, num_a + 1, -1]] = False
    masks = np.where(is_token, tokenizer.vocab.get("[MASK]", 0), inputs["input_ids"])
    all_scores, difference = _integrate(model, output, inputs, masks, steps)
    scores = all_scores[is_token[0]]
    tokens, text_indices, offsets = [], [], []
    for index, (text, count) in enumerate(zip(texts, (num_a, max(num_b, 0)), strict=False)):
        pieces, spans = tokenize_with_offsets(tokenizer, text)
        tokens, offsets = tokens + pieces[:count], offsets + spans[:count]
        text_indices += [index] * count
    completeness = abs(float(scores.sum()) - difference)
    if completeness > 0.05 * np.abs(scores).sum() + 1e-6:
        warn(f"The sum of the scores is off by {completeness:.2g}: pass steps={4 * steps}")
    lists = tokens, text_indices, offsets, scores.tolist()
    return Explanation(label, *lists, difference, completeness, texts)


def _integrate(
    model: Any, output: Callable[[Any], Any], inputs: Any, baseline_ids: np.ndarray, steps: int
) -> tuple[np.ndarray, float]:
    """Returns scores [S] and the difference of outputs, on the path from `baseline_ids` [1, S]."""
    table = model.bert.embeddings.word_embeddings
    baseline = tf.gather(table, baseline_ids)  # [1, S, H]
    path = tf.gather(table, inputs["input_ids"]) - baseline
    points, weights = np.polynomial.legendre.leggauss(steps)  # on the interval from -1 to 1
    # The ends of the path have weight 0, and show the difference.
    fractions, weights = np.array([[-1, *points, 1], [0, *weights, 0]], np.float32) / 2
    size = max(_MAX_BATCH_TOKENS // baseline_ids.size, 1)
    scores, outputs = np.zeros(baseline_ids.size), []
    for start in range(0, len(weights), size):
        part = slice(start, start + size)
        vectors = baseline + (fractions[part, None, None] + 0.5) * path
        rows = {name: np.repeat(value, len(vectors), axis=0) for name, value in inputs.items()}
        with tf.GradientTape() as tape:
            tape.watch(vectors)
            outputs.append(output(model({**rows, "word_embeddings": vectors})["logits"]))
        gradients = tape.gradient(outputs[-1], vectors)
        scores += tf.einsum("k,ksh,sh->s", weights[part], gradients, path[0]).numpy()
    values = np.concatenate(outputs)
    if not np.isfinite([*values, *scores]).all():
        raise NotFinite([0], 1)
    return scores, float(values[-1] - values[0])
