"""The markers before two entities in texts, for `--pooling=entity_starts`."""

import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from bert_tf.data.features import InputExample
from bert_tf.errors import UserError, counted, excerpt
from bert_tf.progress import log
from bert_tf.tasks.classification.options import ENTITY_STARTS
from bert_tf.tokenization import FullTokenizer

# A closing tag, or the word "end".
_END = re.compile(r"^\W*/|(?<![a-z])end(?![a-z])", re.IGNORECASE)


def find(pooling: str, tokenizer: FullTokenizer) -> dict[str, int]:
    """Returns the markers before two entities, and their ids; {} with other values of `pooling`.

    Special tokens such as [/E1] or [E1_END] follow an entity; of four others, the second and the
    fourth do. Raises a UserError unless two are left.
    """
    if pooling != ENTITY_STARTS:
        return {}
    special_tokens = tokenizer.basic_tokenizer.special_tokens
    starts = [token for token in special_tokens if not _END.search(token)]
    starts = starts[::2] if len(starts) == len(special_tokens) == 4 else starts
    if len(starts) != 2:
        found = f"{len(starts)} in --special_tokens: {', '.join(starts) or 'none'}"
        advice = "Pass their names, as in --special_tokens=[E1],[/E1],[E2],[/E2]"
        problem = "needs the markers before two entities, but there are"
        raise UserError(f"--pooling=entity_starts {problem} {found}. {advice}")
    log.info("The classifier reads the entities after %s and %s", *starts)
    return {marker: tokenizer.vocab[marker] for marker in starts}


def require_in(examples: Sequence[InputExample], markers: Iterable[str], source: str) -> None:
    """Raises a UserError if a marker is in no text of a file."""
    for marker in markers:
        if examples and not any(marker in _text(example) for example in examples):
            advice = "Mark the two entities of each text, or omit --pooling=entity_starts"
            text = excerpt(_text(examples[0]))
            raise UserError(f"{source}: no text has {marker}, such as {text}. {advice}")


def check(rows: np.ndarray, marker_ids: dict[str, int], source: str) -> Iterator[str]:
    """Yields a sentence for each marker that is missing in rows of `input_ids`, [B, S]."""
    for marker, id_ in marker_ids.items():
        if count := int(np.count_nonzero(~(rows == id_).any(axis=1))):
            lack = f"lack {marker}, or have it after --max_seq_length={rows.shape[1]}"
            texts = counted(count, "text", lack, of=len(rows))
            yield f"{source}: {texts}: the vector of [CLS] takes its place"


def _text(example: InputExample) -> str:
    return f"{example.text_a} {example.text_b or ''}"
