"""What the pages deny: each such sentence has a check, which fails once it is no longer true."""

import json
import pickle
import re
from collections.abc import Callable
from unittest.mock import MagicMock

import pytest

from bert_tf import Predictor, checkpoint
from bert_tf.base.errors import UserError
from bert_tf.checkpoints.formats.saved_model import SavedModelSource
from bert_tf.checkpoints.formats.sentence_transformers import declared_vectors
from bert_tf.checkpoints.run_folder import RunFolder
from bert_tf.modeling import BertModel
from bert_tf.options import EmbeddingsOptions
from bert_tf.options.registry import SCRIPTS
from bert_tf.saved_models.onnx_graph import build_onnx_model
from bert_tf.serving.app import _Routes
from bert_tf.serving.options import ServingOptions
from bert_tf.serving.schemas import PredictRequest
from bert_tf.tasks.embeddings.model import BertBiEncoder
from bert_tf.training.devices import read_cluster
from tests.oracle import ROOT

PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
TESTED = ROOT / "docs/tested.md"
_DENIAL = re.compile(
    r"no server|not available|not supported|cannot be (served|exported|explained|pickled|converted)"
    r"|\b(do|does) not (support|read|offer|run)\b"
    r"|server has no|there is no (server|flag|script|CRF)",
    re.I,
)
_UNTRIED = re.compile(
    r"\b(not|never)( been)? (tried|tested)\b|\bn(ot|ever) been run\b|have not run"
)


def sentences(page) -> list[str]:
    """Returns the sentences, list items and table rows of a page, each on a line.

    Leaves out code, headings (of troubleshooting.md: messages) and tables of flags.
    """
    text = re.sub(r"^( *)```.*?^\1```$", "", page.read_text("utf-8"), flags=re.S | re.M)
    text = re.sub(r"<!-- flags -->.*?(?=\n\n#|\Z)", "", text, flags=re.S)
    blocks = re.split(r"\n\s*\n|\n(?=[-|#])", text)
    blocks = [" ".join(block.split()) for block in blocks if not block.startswith("#")]
    return [
        sentence
        for block in blocks
        for sentence in (
            [block] if block.startswith("|") else re.split(r"(?<=[.!?]) (?=\S)", block)
        )
    ]


def lacks(script: str, *words: str) -> Callable[[], None]:
    """Returns a check that no flag of a script has one of the words in its name."""
    return lambda: _assert_none(SCRIPTS[script].options_class.__dataclass_fields__, words)


def lacks_value(script: str, flag: str, *words: str) -> Callable[[], None]:
    """Returns a check that no value of a flag has one of the words in it."""

    def check() -> None:
        field = SCRIPTS[script].options_class.__dataclass_fields__[flag]
        _assert_none(field.metadata["choices"], words)

    return check


def lacks_code(*words: str) -> Callable[[], None]:
    """Returns a check that no module of the package contains one of the words."""
    sources = (path.read_text("utf-8").lower() for path in ROOT.glob("bert_tf/**/*.py"))
    return lambda: _assert_none(sources, words)


def _assert_none(texts, words) -> None:
    assert not [word for text in texts for word in words if word in text]


def estimators_are_gone() -> None:
    import tensorflow as tf

    assert not hasattr(tf, "estimator")


def parameter_servers(monkeypatch) -> None:
    hosts = {"worker": ["a:1", "b:1"], "ps": ["c:1"]}
    config = {"cluster": hosts, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    with pytest.raises(UserError, match="must list the jobs chief and worker"):
        read_cluster()


def explanations(tiny) -> None:
    with pytest.raises(UserError, match=r"run_classifier\.py"):
        Predictor(tiny.folder, script="extract_features", layers="-1", max_seq_length=8).explain(
            "the good film"
        )


def pickles(tiny) -> None:
    with pytest.raises(UserError, match="cannot be pickled"):
        pickle.dumps(
            Predictor(tiny.folder, script="extract_features", layers="-1", max_seq_length=8)
        )


def pickled_weights(tmp_path, tiny) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(UserError, match="a pickle"):
        checkpoint.restore(BertModel(tiny.config), str(tmp_path / "pytorch_model.bin"))


def modules_of_tensorflow_1(tmp_path) -> None:
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    module = SavedModel()
    module.meta_graphs.add()
    (tmp_path / "saved_model.pb").write_bytes(module.SerializeToString())
    (tmp_path / "variables").mkdir()
    (tmp_path / "variables/variables.index").write_bytes(b"")
    with pytest.raises(UserError, match="for TensorFlow 1"):
        SavedModelSource(str(tmp_path))


def declared_modules(tmp_path) -> None:
    kinds = {"0": "Transformer", "1": "Pooling", "2": "Dense"}
    modules = [
        {"idx": int(i), "name": i, "path": i, "type": f"sentence_transformers.models.{kind}"}
        for i, kind in kinds.items()
    ]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    for name in kinds:
        (tmp_path / name).mkdir()
    declared = declared_vectors(RunFolder(str(tmp_path)))
    assert declared is not None
    assert "Dense" in declared.unsupported


def predictions_of_encoders() -> None:
    names = ("init_checkpoint", "data_dir", "output_dir", "anchor_column", "positive_column")
    options = EmbeddingsOptions(do_predict=True, **dict.fromkeys(names, "a"))
    with pytest.raises(UserError, match="--do_predict is not supported"):
        options.check()


def windows_in_exports() -> None:
    sources = "".join(path.read_text("utf-8") for path in ROOT.glob("bert_tf/saved_models/*.py"))
    assert "windows" not in sources


def onnx_files_of_encoders(tiny) -> None:
    model = BertBiEncoder(tiny.config)
    with pytest.raises(UserError, match="cannot be exported to ONNX"):
        build_onnx_model(model)


def routes() -> None:
    routes_of_server = _Routes({}, ServingOptions(), MagicMock()).paths().values()
    paths = [path for group in routes_of_server for path in group]
    row = next(line for line in sentences(ROOT / "docs/serving.md") if line.startswith("| TEI |"))
    denied = re.findall(r"(?<!of )`(?:POST )?(/\w*)`", row.split("|")[3])
    assert len(denied) >= 5
    assert not set(denied) & set(paths)
    assert not [path for path in paths if ":classify" in path or ":regress" in path]


def signatures() -> None:
    for name in ("ids", "examples"):
        with pytest.raises(ValueError, match="signature_name"):
            PredictRequest.model_validate({"instances": ["A"], "signature_name": name})


# A part of the sentence, which may be on several pages -> what would fail if it were not true.
DENIALS = {
    "A TensorFlow 1 graph, which bert_tf does not read": lacks_code("ckpt.meta"),
    "`-pooling_strategy SEP_TOKEN`, `LAST_TOKEN`": lacks_value(
        "extract_features", "pooling", "sep", "last"
    ),
    "A fork as a whole does not run on TensorFlow 2": estimators_are_gone,
    "There is no CRF layer": lacks_code("crf"),
    "`SparseEncoder`": lacks_code("splade"),
    "`TripletLoss`, `ContrastiveLoss`": lacks_value(
        "run_embeddings", "loss", "triplet", "contrastive", "angle", "gist", "margin"
    ),
    "`MultiDatasetBatchSamplers.ROUND_ROBIN`": lacks("run_embeddings", "robin", "sampler"),
    "`BatchSamplers.NO_DUPLICATES`": lacks("run_embeddings", "duplicates", "sampler"),
    "other poolings, such as `weightedmean`": lacks_value(
        "run_embeddings", "pooling", "weighted", "last"
    ),
    "`Dense`, `Router`, `StaticEmbedding`": declared_modules,
    "are not supported: the error names them": declared_modules,
    "| `max_steps`": lacks("run_classifier", "steps_total", "max_steps", "num_train_steps"),
    "| `overwrite_output_dir`": lacks("run_classifier", "overwrite"),
    "does not read `pytorch_model.bin`": pickled_weights,
    "| TensorFlow Model Garden": lacks_value("convert_checkpoint", "to", "garden", "object"),
    "does not support `--long_text=windows`": windows_in_exports,
    "Parameter servers and evaluator jobs": parameter_servers,
    "Other tasks and engines cannot be explained": explanations,
    "A `Predictor` cannot be pickled": pickles,
    "| `run_embeddings.py` | Not supported": onnx_files_of_encoders,
    "The script does not read modules for TensorFlow 1": modules_of_tensorflow_1,
    "`--do_predict` is not supported": predictions_of_encoders,
    "| interface | supported | not supported |": routes,
    "The server has no users or quotas, no TLS": lacks(
        "serve_model", "user", "quota", "tls", "ssl", "cert", "grpc", "http2", "reload"
    ),
    "The server does not offer the signatures": signatures,
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_denials_are_in_the_table(page):
    for sentence in filter(_DENIAL.search, sentences(page)):
        assert any(part in sentence for part in DENIALS), f"add a check for this: {sentence}"


def test_the_table_has_only_what_pages_deny():
    denied = "\n".join(s for page in PAGES for s in sentences(page) if _DENIAL.search(s))
    assert [part for part in DENIALS if part not in denied] == []


@pytest.mark.parametrize("part", DENIALS)
def test_denials_are_true(part, request):
    code = DENIALS[part].__code__
    names = code.co_varnames[: code.co_argcount]
    DENIALS[part](**{name: request.getfixturevalue(name) for name in names})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_only_one_page_says_what_has_not_been_tried(page):
    untried = [sentence for sentence in sentences(page) if _UNTRIED.search(sentence)]
    assert bool(untried) == (page == TESTED), untried
