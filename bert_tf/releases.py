"""The 33 checkpoints that google-research/bert published, as a table.

Nine of 2018 and 2019, and the 24 smaller ones of March 2020 (Turc et al. 2019, "Well-Read
Students Learn Better"), whose largest is BERT-Base trained anew under the name of 2018's. The
table knows sizes and casing and where the files lie; it downloads nothing.

Sources: README and multilingual.md of google-research/bert; the sizes of the vocabularies from
the `bert_config.json` files and the vocabularies themselves.
"""

import dataclasses
import re

from bert_tf.config import BertConfig

BUCKET = "https://storage.googleapis.com/bert_models"
# One file with the zips of all 24 smaller models.
SMALL_MODELS_URL = f"{BUCKET}/2020_02_20/all_bert_models.zip"

# Every published model has heads of this width.
_HEAD_SIZE = 64


@dataclasses.dataclass(frozen=True)
class _Vocabulary:
    prefix: str
    size: int
    cased: bool
    language: str
    sha256: str | None


_ENGLISH = _Vocabulary(
    "uncased",
    30522,
    False,
    "English",
    "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
)
_ENGLISH_CASED = _Vocabulary(
    "cased",
    28996,
    True,
    "English",
    "eeaa9875b23b04b4c54ef759d03db9d1ba1554838f8fb26c5d96fa551df93d02",
)
_MULTILINGUAL = _Vocabulary("multilingual", 105879, False, "102 languages", None)
_MULTILINGUAL_CASED = _Vocabulary(
    "multi_cased",
    119547,
    True,
    "104 languages",
    "fe0fda7c425b48c516fc8f160d594c8022a0808447475c1a7c6d6479763f310c",
)
_CHINESE = _Vocabulary(
    "chinese",
    21128,
    False,
    "Chinese",
    "45bbac6b341c319adc98a532532882e91a9cefc0329aa57bac9ae761c27b291c",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Release:
    """A published checkpoint.

    Attributes:
        name: of the zip, and of the folder with the files.
        title: what its authors call it; empty for the small models that they only number.
        date: folder of the bucket. Of the two that are called `uncased_L-12_H-768_A-12` this
            tells which is meant.
        layers: transformer layers.
        hidden_size: H.
        heads: attention heads in a layer.
        vocab_size: lines of `vocab.txt`.
        vocab_sha256: digest of `vocab.txt`; None where it is not known.
        cased: False where texts have to be lower-cased (`--do_lower_case=true`).
        language: what it was trained on.
        parameters: how many it has, as published and with their rounding ("110M"), or None. The
            figure is that of the model's size with the English uncased vocabulary, and counts
            the heads of pre-training; see `encoder_parameters` for exact ones.
        whole_word_masking: whether all pieces of a word were masked together.
    """

    name: str
    title: str
    date: str
    layers: int
    hidden_size: int
    heads: int
    vocab_size: int
    vocab_sha256: str | None
    cased: bool
    language: str
    parameters: str | None
    whole_word_masking: bool = False

    @property
    def url(self) -> str:
        """Where its authors put the zip."""
        return f"{BUCKET}/{self.date}/{self.name}.zip"

    def config(self) -> BertConfig:
        """A configuration with the sizes and rates of the release.

        The Chinese and the multilingual `bert_config.json` have further keys (`directionality`,
        `pooler_*`), which nothing reads and which are not here.
        """
        return BertConfig(
            vocab_size=self.vocab_size,
            hidden_size=self.hidden_size,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            intermediate_size=4 * self.hidden_size,
            type_vocab_size=2,
        )


def encoder_parameters(config: BertConfig) -> int:
    """Numbers in embeddings, encoder and pooler: what fine-tuning starts from."""
    hidden, inner = config.hidden_size, config.intermediate_size
    norm = 2 * hidden
    rows = config.vocab_size + config.max_position_embeddings + config.type_vocab_size
    attention = 4 * (hidden * hidden + hidden) + norm
    feed_forward = (hidden * inner + inner) + (inner * hidden + hidden) + norm
    pooler = hidden * hidden + hidden
    layers = config.num_hidden_layers * (attention + feed_forward)
    return rows * hidden + norm + layers + pooler


def checkpoint_parameters(config: BertConfig) -> int:
    """Numbers in a published checkpoint: `encoder_parameters` and the heads of pre-training."""
    hidden = config.hidden_size
    masked_words = hidden * hidden + hidden + 2 * hidden + config.vocab_size
    next_sentence = 2 * hidden + 2
    return encoder_parameters(config) + masked_words + next_sentence


def named(name_or_path: str) -> Release | None:
    """The release that a name, or a folder or zip in a path, is called after.

    Only whole names count: neither `wwm_uncased_...` nor `my_uncased_...` is `uncased_...`. The
    innermost of several decides. `uncased_L-12_H-768_A-12` is the model of 2018, unless it lies in
    a folder `2020_02_20`.

    Args:
        name_or_path: such as `/models/uncased_L-12_H-768_A-12/bert_model.ckpt`, the name alone,
            or the address of a zip.
    """
    parts = re.split(r"[/\\]", name_or_path)
    for index in reversed(range(len(parts))):
        name = parts[index].removesuffix(".zip")
        found = [release for release in RELEASES if release.name == name]
        folder = parts[index - 1] if index else ""
        for release in found:
            if release.date == folder:
                return release
        if found:
            return found[0]
    return None


def matching(config: BertConfig) -> list[Release]:
    """The releases whose checkpoints a model of this configuration can load.

    Names and shapes of all variables are then the same. Casing and training are not seen in a
    configuration, so several may match.
    """
    sizes = _sizes(config)
    return [release for release in RELEASES if _sizes(release.config()) == sizes]


def _sizes(config: BertConfig) -> list[int]:
    return [getattr(config, key) for key in _SIZE_KEYS]


_SIZE_KEYS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
)


def _release(
    vocabulary: _Vocabulary,
    layers: int,
    hidden_size: int,
    date: str,
    title: str,
    parameters: str | None,
    whole_word_masking: bool = False,
) -> Release:
    heads = hidden_size // _HEAD_SIZE
    prefix = ("wwm_" if whole_word_masking else "") + vocabulary.prefix
    return Release(
        name=f"{prefix}_L-{layers}_H-{hidden_size}_A-{heads}",
        title=title,
        date=date,
        layers=layers,
        hidden_size=hidden_size,
        heads=heads,
        vocab_size=vocabulary.size,
        vocab_sha256=vocabulary.sha256,
        cased=vocabulary.cased,
        language=vocabulary.language,
        parameters=parameters,
        whole_word_masking=whole_word_masking,
    )


def _small(layers: int, hidden_size: int) -> Release:
    title, parameters = _SMALL_NAMES.get((layers, hidden_size), ("", None))
    return _release(_ENGLISH, layers, hidden_size, "2020_02_20", title, parameters)


# The smaller models that have a name, with the parameters that the paper gives.
_SMALL_NAMES = {
    (2, 128): ("BERT-Tiny", "4.4M"),
    (4, 256): ("BERT-Mini", "11.3M"),
    (4, 512): ("BERT-Small", "29.1M"),
    (8, 512): ("BERT-Medium", "41.7M"),
    (12, 768): ("BERT-Base, Uncased (trained anew)", None),
}

RELEASES: tuple[Release, ...] = (
    _release(_ENGLISH, 12, 768, "2018_10_18", "BERT-Base, Uncased", "110M"),
    _release(_ENGLISH, 24, 1024, "2018_10_18", "BERT-Large, Uncased", "340M"),
    _release(_ENGLISH_CASED, 12, 768, "2018_10_18", "BERT-Base, Cased", "110M"),
    _release(_ENGLISH_CASED, 24, 1024, "2018_10_18", "BERT-Large, Cased", "340M"),
    _release(
        _MULTILINGUAL,
        12,
        768,
        "2018_11_03",
        "BERT-Base, Multilingual Uncased (not recommended)",
        "110M",
    ),
    _release(_CHINESE, 12, 768, "2018_11_03", "BERT-Base, Chinese", "110M"),
    _release(_MULTILINGUAL_CASED, 12, 768, "2018_11_23", "BERT-Base, Multilingual Cased", "110M"),
    _release(
        _ENGLISH, 24, 1024, "2019_05_30", "BERT-Large, Uncased (Whole Word Masking)", "340M", True
    ),
    _release(
        _ENGLISH_CASED,
        24,
        1024,
        "2019_05_30",
        "BERT-Large, Cased (Whole Word Masking)",
        "340M",
        True,
    ),
    *(_small(layers, hidden) for layers in (2, 4, 6, 8, 10, 12) for hidden in (128, 256, 512, 768)),
)
