"""The 33 checkpoints released by google-research/bert, with sizes, casing and URLs.

Nine are from 2018 and 2019, and 24 from March 2020 (Turc et al. 2019, "Well-Read Students Learn
Better"). The largest of these 24 is a retrained BERT-Base; the BERT-Base of 2018 has the same name.
This module only lists the checkpoints; it downloads nothing.

Sources: README and multilingual.md of google-research/bert; vocabulary sizes are from the
`bert_config.json` and `vocab.txt` files.
"""

import dataclasses
import re
from itertools import pairwise
from operator import attrgetter

from bert_tf.config import SIZES, BertConfig

BUCKET = "https://storage.googleapis.com/bert_models"


@dataclasses.dataclass(frozen=True)
class Release:
    """A published checkpoint.

    Attributes:
        name: name of the zip, and of the folder in it.
        date: folder in the bucket; distinguishes the two models `uncased_L-12_H-768_A-12`.
        layers: number of transformer layers.
        hidden_size: size of the hidden states, H.
        heads: attention heads per layer.
        vocab_size: number of lines in `vocab.txt`.
        cased: if False, texts must be lower-cased (`--do_lower_case=true`).
        language: language of the training data.
        hub_name: name of the same model on the Hugging Face Hub; empty for the small models.
    """

    name: str
    date: str
    layers: int
    hidden_size: int
    heads: int
    vocab_size: int
    cased: bool
    language: str
    hub_name: str = ""

    @property
    def url(self) -> str:
        """URL of the zip."""
        return f"{BUCKET}/{self.date}/{self.name}.zip"

    def config(self) -> BertConfig:
        """Returns the configuration, without unused keys such as `directionality`."""
        return BertConfig(
            vocab_size=self.vocab_size,
            hidden_size=self.hidden_size,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            intermediate_size=4 * self.hidden_size,
            type_vocab_size=2,
        )


def encoder_parameters(config: BertConfig) -> int:
    """Returns the number of parameters of embeddings, encoder and pooler."""
    hidden, inner = config.hidden_size, config.intermediate_size
    layer_norm = 2 * hidden
    embedding_rows = config.vocab_size + config.max_position_embeddings + config.type_vocab_size
    attention = 4 * (hidden * hidden + hidden) + layer_norm
    feed_forward = (hidden * inner + inner) + (inner * hidden + hidden) + layer_norm
    pooler = hidden * hidden + hidden
    encoder = config.num_hidden_layers * (attention + feed_forward)
    return embedding_rows * hidden + layer_norm + encoder + pooler


def checkpoint_parameters(config: BertConfig) -> int:
    """Returns the number of parameters of a pre-trained checkpoint: encoder and both heads."""
    hidden = config.hidden_size
    masked_lm = hidden * hidden + hidden + 2 * hidden + config.vocab_size
    next_sentence = 2 * hidden + 2
    return encoder_parameters(config) + masked_lm + next_sentence


def named(name_or_path: str) -> Release | None:
    """Returns the release with this name, or with that of a folder or zip in this path.

    Names must match completely: `wwm_uncased_...` and `my_uncased_...` are not `uncased_...`. If
    several parts of a path match, the last of them counts. `uncased_L-12_H-768_A-12` is the model
    from 2018, unless its parent folder is `2020_02_20`.

    Args:
        name_or_path: a path such as `/models/uncased_L-12_H-768_A-12/bert_model.ckpt`, a release
            name, or the URL of a zip.
    """
    parts = re.split(r"[/\\]", name_or_path)
    for folder, part in reversed([*pairwise(["", *parts])]):
        candidates = [r for r in RELEASES if r.name == part.removesuffix(".zip")]
        if candidates:
            return next((r for r in candidates if r.date == folder), candidates[0])
    return None


def matching(config: BertConfig) -> list[Release]:
    """Returns the releases whose checkpoints a model with this configuration can load.

    Their variables have the same names and shapes. Several releases may match, because a
    configuration determines neither casing nor training data.
    """
    sizes = attrgetter(*SIZES)
    return [release for release in RELEASES if sizes(release.config()) == sizes(config)]


# Prefix of the release name -> size, casing (True if cased) and language of the vocabulary.
_VOCABULARIES = {
    "uncased": (30522, False, "English"),
    "cased": (28996, True, "English"),
    "multilingual": (105879, False, "102 languages"),
    "multi_cased": (119547, True, "104 languages"),
    "chinese": (21128, False, "Chinese"),
}


def _release(prefix: str, layers: int, hidden_size: int, date: str, hub_name: str = "") -> Release:
    # In all releases, attention heads have size 64.
    heads = hidden_size // 64
    name = f"{prefix}_L-{layers}_H-{hidden_size}_A-{heads}"
    vocabulary = _VOCABULARIES[prefix.removeprefix("wwm_")]
    return Release(name, date, layers, hidden_size, heads, *vocabulary, hub_name)


RELEASES: tuple[Release, ...] = (
    _release("uncased", 12, 768, "2018_10_18", "bert-base-uncased"),
    _release("uncased", 24, 1024, "2018_10_18", "bert-large-uncased"),
    _release("cased", 12, 768, "2018_10_18", "bert-base-cased"),
    _release("cased", 24, 1024, "2018_10_18", "bert-large-cased"),
    _release("multilingual", 12, 768, "2018_11_03", "bert-base-multilingual-uncased"),
    _release("chinese", 12, 768, "2018_11_03", "bert-base-chinese"),
    _release("multi_cased", 12, 768, "2018_11_23", "bert-base-multilingual-cased"),
    _release("wwm_uncased", 24, 1024, "2019_05_30", "bert-large-uncased-whole-word-masking"),
    _release("wwm_cased", 24, 1024, "2019_05_30", "bert-large-cased-whole-word-masking"),
    *(
        _release("uncased", layers, hidden, "2020_02_20")
        for layers in (2, 4, 6, 8, 10, 12)
        for hidden in (128, 256, 512, 768)
    ),
)
