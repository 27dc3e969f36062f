"""The table of published checkpoints: its entries, and models of the listed sizes."""

import dataclasses
import gc
import hashlib
import json
import math
import re

import keras
import numpy as np
import pytest

from bert_tf import checkpoint, checkpoints, releases
from bert_tf.base.errors import UserError
from bert_tf.config import BertConfig
from bert_tf.modeling import BertModel, BertPretrainer
from bert_tf.options import ClassifierOptions, ExtractionOptions, PretrainingDataOptions
from bert_tf.releases import RELEASES, named
from bert_tf.tasks import extraction
from bert_tf.tokenization import validate_case_matches_checkpoint
from tests.modeling.helpers import config as golden_config
from tests.oracle import ROOT, golden, vocabulary

SMALL = [(layers, hidden) for layers in (2, 4, 6, 8, 10, 12) for hidden in (128, 256, 512, 768)]
EACH = pytest.mark.parametrize("release", RELEASES, ids=lambda r: f"{r.date}/{r.name}")
DOCUMENT = (ROOT / "docs/checkpoints.md").read_text()
# Zip, title, language, vocabulary size, casing, parameters of the encoder, published parameters.
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in DOCUMENT.splitlines()
    if line.startswith("| [")
]

# ---- Table entries ---------------------------------------------------------------------------


def test_table_lists_33_releases():
    assert len(RELEASES) == 33 == 9 + len(SMALL)
    small = [release for release in RELEASES if release.date == "2020_02_20"]
    assert [(release.layers, release.hidden_size) for release in small] == SMALL
    assert len({release.url for release in RELEASES}) == 33
    # BERT-Base was published twice under one name.
    names = [release.name for release in RELEASES]
    assert [name for name in sorted(set(names)) if names.count(name) > 1] == [
        "uncased_L-12_H-768_A-12"
    ]


@EACH
def test_release_name_encodes_sizes(release):
    named_sizes = re.search(r"_L-(\d+)_H-(\d+)_A-(\d+)$", release.name).groups()
    layers, hidden, heads = map(int, named_sizes)
    assert (release.layers, release.hidden_size, release.heads) == (layers, hidden, heads)
    assert release.cased == bool(re.match("(wwm_|multi_)?cased_", release.name))
    sizes = (release.vocab_size, hidden, layers, hidden // 64, 4 * hidden)
    assert release.config() == BertConfig(*sizes, type_vocab_size=2)


@pytest.mark.parametrize(
    ("name", "vocab"),
    [
        ("uncased_L-12_H-768_A-12", "uncased"),
        ("cased_L-12_H-768_A-12", "cased"),
        ("chinese_L-12_H-768_A-12", "chinese"),
        pytest.param("multi_cased_L-12_H-768_A-12", "multilingual", marks=pytest.mark.shared),
    ],
)
def test_vocabulary_sizes(name, vocab):
    content = vocabulary(vocab).read_bytes()
    assert len(content.splitlines()) == named(name).vocab_size
    assert hashlib.sha256(content).hexdigest() in DOCUMENT


# ---- Finding a release -----------------------------------------------------------------------


@EACH
def test_release_is_identified_by_path(release):
    for path in (
        "gs://bert_models/{date}/{name}/bert_model.ckpt-1000",
        "C:\\models\\{date}\\{name}\\vocab.txt",
        "uncased_L-2_H-128_A-2/{date}/{name}.zip",
    ):
        assert named(path.format(name=release.name, date=release.date)) is release
    assert named(release.url) is release
    assert named(release.name).config() == release.config()


@pytest.mark.parametrize(
    "path",
    [
        "",
        "my_uncased_L-12_H-768_A-12/bert_model.ckpt",
        "uncased_L-12_H-768_A-12_mrpc/model.ckpt-343",
        "UNCASED_L-12_H-768_A-12",
        "uncased_L-12_H-768_A-16",
        "uncased_L-2_H-128_A-2.tar",
    ],
)
def test_unrelated_paths_match_no_release(path):
    assert named(path) is None


def test_older_release_with_a_shared_name():
    assert named("/m/uncased_L-12_H-768_A-12/bert_model.ckpt").date == "2018_10_18"
    assert named("/m/2020_02_20/uncased_L-12_H-768_A-12/bert_model.ckpt").date == "2020_02_20"


def test_releases_matching_a_config():
    matching = lambda name: [r.name for r in releases.matching(named(name).config())]  # noqa: E731
    assert matching("uncased_L-12_H-768_A-12") == ["uncased_L-12_H-768_A-12"] * 2
    assert matching("cased_L-24_H-1024_A-16") == [
        "cased_L-24_H-1024_A-16",
        "wwm_cased_L-24_H-1024_A-16",
    ]
    assert matching("multilingual_L-12_H-768_A-12") == ["multilingual_L-12_H-768_A-12"]
    # This model's published file has keys that the table omits.
    chinese = {**named("chinese_L-12_H-768_A-12").config().to_dict(), "directionality": "bidi"}
    (release,) = releases.matching(BertConfig.from_dict(chinese))
    assert release.language == "Chinese"
    assert releases.matching(BertConfig.from_dict({**chinese, "type_vocab_size": 3})) == []


# ---- Casing check ----------------------------------------------------------------------------


@EACH
def test_casing_of_each_release_is_checked(release):
    path = f"/models/{release.name}/bert_model.ckpt"
    validate_case_matches_checkpoint(not release.cased, path)
    ClassifierOptions(init_checkpoint=path, do_lower_case=not release.cased).check_model()
    needed = "false" if release.cased else "true"
    kind = "a cased model" if release.cased else "an uncased model"
    with pytest.raises(UserError, match=f"{kind}.*Pass --do_lower_case={needed},"):
        ClassifierOptions(init_checkpoint=path, do_lower_case=release.cased).check_model()


# ---- Sizes -----------------------------------------------------------------------------------


def shapes_of_a_release(config: BertConfig) -> dict[str, tuple[int, ...]]:
    """Returns a published checkpoint's shapes, derived from the original's variable definitions."""
    hidden, inner, vocab = config.hidden_size, config.intermediate_size, config.vocab_size

    def dense(name, rows, columns):
        return {f"{name}/kernel": (rows, columns), f"{name}/bias": (columns,)}

    def norm(name):
        return {f"{name}/LayerNorm/{part}": (hidden,) for part in ("beta", "gamma")}

    shapes = {
        "bert/embeddings/word_embeddings": (vocab, hidden),
        "bert/embeddings/position_embeddings": (config.max_position_embeddings, hidden),
        "bert/embeddings/token_type_embeddings": (config.type_vocab_size, hidden),
        **norm("bert/embeddings"),
        **dense("bert/pooler/dense", hidden, hidden),
        **dense("cls/predictions/transform/dense", hidden, hidden),
        **norm("cls/predictions/transform"),
        "cls/predictions/output_bias": (vocab,),
        "cls/seq_relationship/output_weights": (2, hidden),
        "cls/seq_relationship/output_bias": (2,),
    }
    for layer in range(config.num_hidden_layers):
        scope = f"bert/encoder/layer_{layer}"
        for part in ("query", "key", "value"):
            shapes |= dense(f"{scope}/attention/self/{part}", hidden, hidden)
        shapes |= dense(f"{scope}/attention/output/dense", hidden, hidden)
        shapes |= norm(f"{scope}/attention/output")
        shapes |= dense(f"{scope}/intermediate/dense", hidden, inner)
        shapes |= dense(f"{scope}/output/dense", inner, hidden)
        shapes |= norm(f"{scope}/output")
    return shapes


def test_variable_shapes_match_the_original():
    rows = json.loads(golden("checkpoint_variables.json").read_text())
    written = {
        name: tuple(shape)
        for name, shape, _ in rows["pretraining_train_one/model.ckpt-0"]
        if not name.endswith(("/adam_m", "/adam_v")) and name != "global_step"
    }
    assert shapes_of_a_release(golden_config()) == written


@EACH
def test_parameter_count_is_the_sum_over_shapes(release):
    config = release.config()
    shapes = shapes_of_a_release(config)
    assert releases.checkpoint_parameters(config) == sum(map(math.prod, shapes.values()))
    encoder = (math.prod(shape) for name, shape in shapes.items() if name.startswith("bert/"))
    assert releases.encoder_parameters(config) == sum(encoder)


def _as_published(count, published):
    """Formats a parameter count with the precision of a published one: "11.3M", "340M"."""
    return f"{count / 1e6:.1f}M" if "." in published else f"{round(count / 1e7) * 10}M"


def test_parameter_counts_match_published_numbers():
    differ, checked = [], 0
    for release, row in zip(RELEASES, ROWS, strict=True):
        published = row[-1]
        if not published:
            continue
        # The published number is per model size and ignores the vocabulary.
        config = release.config()
        config.vocab_size = named("uncased_L-12_H-768_A-12").vocab_size
        count = releases.checkpoint_parameters(config)
        assert _as_published(count, published) == published
        parameters = releases.checkpoint_parameters(release.config())
        if _as_published(parameters, published) != published:
            differ.append(release.name)
        checked += 1
    assert checked == 9 + 4
    assert differ == [
        "cased_L-24_H-1024_A-16",
        "multilingual_L-12_H-768_A-12",
        "chinese_L-12_H-768_A-12",
        "multi_cased_L-12_H-768_A-12",
        "wwm_cased_L-24_H-1024_A-16",
    ]


@pytest.mark.parametrize(
    ("name", "megabytes"), [("uncased_L-4_H-128_A-2", 19.3), ("uncased_L-12_H-256_A-4", 70.3)]
)
def test_parameter_counts_match_published_file_sizes(name, megabytes):
    # Sizes of bert_model.ckpt.data-00000-of-00001 as listed by a mirror of the models.
    # Without the pre-training heads they would be 19.1 and 70.0.
    count = releases.checkpoint_parameters(named(name).config())
    assert round(4 * count / 1e6, 1) == megabytes


@pytest.mark.parametrize(
    "name",
    [
        "uncased_L-2_H-128_A-2",
        "uncased_L-4_H-256_A-4",
        pytest.param("cased_L-12_H-768_A-12", marks=pytest.mark.slow),
        pytest.param("wwm_uncased_L-24_H-1024_A-16", marks=pytest.mark.slow),
    ],
)
def test_models_have_the_variables_of_their_release(name):
    config = named(name).config()
    variables = checkpoints.named_variables(BertPretrainer(config))
    shapes = {name: tuple(variable.shape) for name, variable in variables.items()}
    assert shapes == shapes_of_a_release(config)
    del variables
    gc.collect()  # the large one takes 1.4 GB


# ---- Languages other than English ------------------------------------------------------------

CHINESE = {
    "北京的天气很好，我们去公园散步。": "北 京 的 天 气 很 好 ， 我 们 去 公 园 散 步 。",
    "台灣的首都是臺北。": "台 灣 的 首 都 是 臺 北 。",
    "我在2018年用BERT训练了一个模型": "我 在 2018 年 用 be ##rt 训 练 了 一 个 模 型",
}
MULTILINGUAL = {
    "Die Straßen von Köln sind schön.": "Die Straßen von Köln sind s ##ch ##ön .",
    "भारत एक विशाल देश है।": "भारत एक वि ##शा ##ल देश है ।",
    "اللغة العربية جميلة.": "اللغة العربية ج ##ميل ##ة .",
    "東京は日本の首都です。": "東 京 は 日 本 の 首 都 で ##す 。",
    "서울은 한국의 수도이다.": "서울 ##은 한국 ##의 수도 ##이다 .",
    "Η Αθήνα είναι πόλη": "Η Αθήνα είναι πόλη",
    "היום יום יפה": "היום יום י ##פה",
    "กรุงเทพเป็นเมืองหลวง": "ก ##ร ##ุ ##ง ##เ ##ท ##พ ##เป็น ##เ ##มือง ##ห ##ล ##วง",
    "北京的天气很好，我们去公园散步。": "北 京 的 天 气 很 好 ， 我 们 去 公 园 散 步 。",
}
LANGUAGES = pytest.mark.parametrize(
    ("name", "vocab", "texts"),
    [
        ("chinese_L-12_H-768_A-12", "chinese", CHINESE),
        pytest.param(
            "multi_cased_L-12_H-768_A-12", "multilingual", MULTILINGUAL, marks=pytest.mark.shared
        ),
    ],
    ids=["chinese", "multilingual"],
)


@LANGUAGES
def test_non_english_feature_extraction(name, vocab, texts, tmp_path):
    """Extracts features with a narrow two-layer model and the release's vocabulary."""
    release = dataclasses.replace(named(name), layers=2, hidden_size=64, heads=1)
    config = release.config()
    folder = tmp_path / name
    folder.mkdir()
    (folder / "bert_config.json").write_text(config.to_json_string())
    (folder / "vocab.txt").write_bytes(vocabulary(vocab).read_bytes())
    keras.utils.set_random_seed(3)
    variables = checkpoints.named_variables(BertModel(config))
    prefix = str(folder / "bert_model.ckpt")
    checkpoint.write(prefix, {key: variable.value for key, variable in variables.items()})
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    options = ExtractionOptions(
        vocab_file=str(folder / "vocab.txt"),
        bert_config_file=str(folder / "bert_config.json"),
        init_checkpoint=prefix,
        do_lower_case=not release.cased,
        input_file=str(tmp_path / "in.txt"),
        output_file=str(tmp_path / "out.jsonl"),
        layers="-1",
        max_seq_length=32,
    )
    options.check()
    extraction.run(options)
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(rows) == len(texts)
    for row, tokens in zip(rows, texts.values(), strict=True):
        actual = [feature["token"] for feature in row["features"]]
        assert actual == ["[CLS]", *tokens.split(), "[SEP]"]
        values = np.array([feature["layers"][0]["values"] for feature in row["features"]])
        assert values.shape == (len(actual), 64)
        assert np.isfinite(values).all()
        assert values.std(axis=1).min() > 0.5  # the output of a normalization


# ---- Documentation ---------------------------------------------------------------------------


def test_docs_contain_the_releases():
    for release, row in zip(RELEASES, ROWS, strict=True):
        zip_file, _, *described, _ = row
        assert zip_file == f"[{release.name}]({release.url})"
        millions = f"{releases.encoder_parameters(release.config()) / 1e6:.1f}M"
        casing = "cased" if release.cased else "uncased"
        assert described == [release.language, f"{release.vocab_size:,}", casing, millions]


def test_docs_text_matches_the_table():
    assert f"{releases.BUCKET}/2020_02_20/all_bert_models.zip" in DOCUMENT
    (code,) = re.findall(r"```python\n(.*?)```", DOCUMENT, re.S)
    printed = []
    exec(code, {"print": lambda *values: printed.append(values)})
    assert printed == [("uncased_L-4_H-512_A-8", False, "English"), (["uncased_L-4_H-512_A-8"],)]
    scripts = (ClassifierOptions, PretrainingDataOptions)
    flags = {field.name for script in scripts for field in dataclasses.fields(script)}
    assert {"do_lower_case"} < set(re.findall(r"--(\w+)", DOCUMENT)) <= flags


def test_names_of_the_first_nine_releases():
    assert [f"{release.date}/{release.name}" for release in RELEASES[:9]] == [
        "2018_10_18/uncased_L-12_H-768_A-12",
        "2018_10_18/uncased_L-24_H-1024_A-16",
        "2018_10_18/cased_L-12_H-768_A-12",
        "2018_10_18/cased_L-24_H-1024_A-16",
        "2018_11_03/multilingual_L-12_H-768_A-12",
        "2018_11_03/chinese_L-12_H-768_A-12",
        "2018_11_23/multi_cased_L-12_H-768_A-12",
        "2019_05_30/wwm_uncased_L-24_H-1024_A-16",
        "2019_05_30/wwm_cased_L-24_H-1024_A-16",
    ]
