"""How a folder of sentence-transformers makes the vector of a text: reads and writes it."""

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from bert_tf.base import files
from bert_tf.base.errors import UserError, note, warn
from bert_tf.checkpoints.run_folder import RunFolder
from bert_tf.config import BertConfig
from bert_tf.options import registry

# Poolings in the order in which sentence-transformers concatenates their vectors.
_FLAGS = {"cls": "cls_token", "max": "max_tokens", "mean": "mean_tokens"}
_PACKAGE = "sentence_transformers"
_SETTINGS = f"config_{_PACKAGE}.json"
_MODULES = "modules.json"
_CHAIN = ["Transformer", "Pooling", "Normalize"]
_TEXTS = "sentence_bert_config.json"
# Keys of the config.json of a CrossEncoder that say how logits become scores.
_ACTIVATION = ("sentence_transformers", "sbert_ce_default_activation_function")
# Names of the prompts of queries, and of the passages that are searched.
_QUERY, _PASSAGE = ("query", "search_query"), ("document", "passage", "corpus", "search_document")


class VectorSpec(NamedTuple):
    """How the vectors of texts are made."""

    path: str = ""  # of the `modules.json` that declares it; "" if nothing does
    pooling: str = "mean"  # see `array_ops.pool`; "none": a vector for each token
    normalize: bool = False  # whether vectors are scaled to length 1
    unsupported: str = ""  # what we cannot compute
    max_seq_length: int | None = None
    lower_case: bool = False  # whether texts are lower-cased before they are tokenized
    prompt: str = ""  # what is prepended to each text
    prompts: Mapping[str, str] = {}  # kind of text, such as "query" -> what is prepended to it
    similarity: str = ""  # the function that compares vectors: "cosine", "dot"; "" if unknown

    def __str__(self) -> str:
        found = f"pooling={self.pooling}{', normalized' * self.normalize}"
        return f"{self.path} declares {self.unsupported or found}"

    @property
    def is_declared(self) -> bool:
        """Whether the folder of the model declares it."""
        return bool(self.path)

    def prefix(self, is_query: bool) -> str:
        """Returns what is prepended to queries, or else to the passages that are searched."""
        kinds = _QUERY if is_query else _PASSAGE
        found = [self.prompts[kind] for kind in kinds if kind in self.prompts]
        return next(filter(None, found), "" if found else self.prompt)

    def unused_prompts(self) -> list[str]:
        """Returns the names of prompts if `prefix` knows none of them."""
        if self.prompt or not {*_QUERY, *_PASSAGE}.isdisjoint(self.prompts):
            return []
        return [name for name, text in self.prompts.items() if text]


def declared_vectors(folder: RunFolder) -> VectorSpec | None:
    """Returns what the folder of a model declares; None if nothing.

    Raises a UserError if a file is damaged, or the configuration of the pooling is missing.
    """
    root, steps = _find_modules(folder)
    names = [name for name, _ in steps if name != "Dropout"]
    if names in ([], _CHAIN[:1]):
        return None
    folder = RunFolder(root.file(steps[0][1]))
    unsupported = "" if names in (_CHAIN[:2], _CHAIN) else f"the modules {', '.join(names)}"
    poolings: list[str] = []
    settings = root.read_json(_SETTINGS)
    prompts = settings.get("prompts") or {}
    if not unsupported:
        config = files.read_json(root.file(f"{dict(steps)['Pooling']}/config.json"))
        poolings = _poolings(config)
        unknown = [f"pooling {name}" for name in poolings if name not in _FLAGS]
        unsupported = ", ".join(unknown) if poolings else "a pooling without any mode"
        if config.get("include_prompt") is False and any(prompts.values()):
            unsupported = unsupported or "a pooling without the prompt (include_prompt=false)"
    return VectorSpec(
        root.file(_MODULES),
        "_".join(poolings),
        "Normalize" in names,
        unsupported,
        max_length(folder),
        bool(folder.read_json(_TEXTS).get("do_lower_case")),
        prompts.get(settings.get("default_prompt_name")) or "",
        prompts,
        settings.get("similarity_fn_name") or "",
    )


def max_length(folder: RunFolder) -> int | None:
    """Returns the number of tokens to which a model of this library cuts texts; None if unknown."""
    texts, tokenizer = folder.read_json(_TEXTS), folder.read_json("tokenizer_config.json")
    # Newer versions store the length with the tokenizer.
    limits = [texts.get("max_seq_length") or tokenizer.get("model_max_length")]
    limits.append(folder.read_json("config.json").get("max_position_embeddings"))
    return min((int(limit) for limit in limits if isinstance(limit, int | float)), default=None)


def encoder_folder(folder: str) -> str:
    """Returns the folder with the weights of a model: in models of 2020, not that of the model."""
    root, modules = _find_modules(RunFolder(folder))
    path = modules[0][1] if modules else ""
    return root.file(path) if path else folder


def _find_modules(folder: RunFolder) -> tuple[RunFolder, list[tuple[str, str]]]:
    """Returns the root of a model, and the class and path of each module; [] if unknown.

    `folder` is the root, or that of the first module.
    """
    outer, name = os.path.split(os.path.abspath(folder.path or "."))
    root = RunFolder(outer) if name.startswith("0_") and not folder.find(_MODULES) else folder
    if not (path := root.find(_MODULES)):
        return folder, []
    try:
        modules = files.parse_json(files.read_text(path), path)
        return root, [(m["type"].split(".")[-1], m["path"]) for m in modules]
    except (AttributeError, KeyError, TypeError):
        raise UserError("no list of modules", at=path) from None


def is_cross_encoder(folder: RunFolder) -> bool:
    """Returns whether run_ranking trained a model, or it is a CrossEncoder, or has one label."""
    if folder.script:
        return folder.script == "run_ranking"
    if folder.find(_MODULES):
        return folder.read_json(_SETTINGS).get("model_type") == "CrossEncoder"
    config = folder.read_json("config.json")
    is_classifier = "BertForSequenceClassification" in (config.get("architectures") or [])
    return is_classifier and len(config.get("id2label") or ()) == 1


def check_encoder(folder: RunFolder) -> None:
    """Warns about an encoder that was trained for another task; UserError for a cross-encoder."""
    if is_cross_encoder(folder):
        reason = "run_ranking trained it" if folder.script else "it is a CrossEncoder"
        raise UserError(f"no vectors of texts: {reason}", at=str(folder))
    tasks = [name for name, entry in registry.entries().items() if entry.make_task]
    if folder.script in tasks and not declared_vectors(folder):
        warn(f"{folder.script} trained it, not for comparing vectors", at=str(folder))


def declaration(
    pooling: str,
    normalize: bool,
    max_seq_length: int,
    size: int,
    prompts: Mapping[str, str],
    lower_case: bool = False,
) -> dict[str, str]:
    """Returns file name -> text for vectors that are made like this, see `declared_vectors`.

    `size` is the encoder's hidden_size; `prompts` are those of the kinds of texts, by name.
    """
    steps = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": f"{_PACKAGE}.models.{name}"}
        for index, (name, path) in enumerate(steps[: 2 + normalize])
    ]
    flags = {f"pooling_mode_{flag}": name in pooling.split("_") for name, flag in _FLAGS.items()}
    contents = {
        _MODULES: modules,
        "1_Pooling/config.json": {"word_embedding_dimension": size, **flags},
        _TEXTS: {"max_seq_length": max_seq_length, "do_lower_case": lower_case},
        _SETTINGS: {"prompts": prompts, "default_prompt_name": None},
    }
    return {name: f"{json.dumps(content, indent=2)}\n" for name, content in contents.items()}


def keeps_declaration(folder: RunFolder, is_needed: bool, is_allowed: bool) -> bool:
    """Returns whether the copy of a model declares its vectors; warns if a declaration is lost.

    Raises a UserError if the copy needs one, but we could not write that of `folder`.
    """
    declared = declared_vectors(folder)
    if is_needed and declared and declared.unsupported:
        advice = "Pass --to=hugging_face --head=encoder to convert only the encoder"
        raise UserError(f"{declared}, which is not supported", fix=advice)
    if is_needed and not declared:
        note("The vectors will be the mean of the tokens: no pooling is declared", at=str(folder))
    keeps = is_needed or bool(is_allowed and declared and not declared.unsupported)
    if declared and not keeps:
        prompts = {kind: text for kind, text in declared.prompts.items() if text}
        found = f"{declared}{f', with the prompts {prompts}' * bool(prompts)}"
        warn(f"{found}; the output does not", fix="Pass --to=sentence_transformers to keep it")
    return keeps


def write_declaration(folder: str, source: RunFolder, config: BertConfig) -> None:
    """Declares in `folder` the vectors that `source` declares; if it declares none, their mean."""
    found = declared_vectors(source) or VectorSpec()
    length = found.max_seq_length or config.max_position_embeddings
    texts = declaration(
        found.pooling, found.normalize, length, config.hidden_size, {}, found.lower_case
    )
    root = RunFolder(os.path.dirname(found.path))
    if found.is_declared and (settings := root.find(_SETTINGS)):
        texts[_SETTINGS] = files.read_text(settings)
    files.write_texts(folder, texts)
    if found.normalize:  # sentence-transformers requires this folder
        files.make_dirs(os.path.join(folder, "2_Normalize"))


def copy_cross_encoder(folder: str, source: RunFolder) -> None:
    """Completes a converted CrossEncoder: its scores are made as in `source`."""
    paths = {name: source.find(name) for name in (_MODULES, _SETTINGS, _TEXTS)}
    texts = {name: files.read_text(path) for name, path in paths.items() if path}
    config, theirs = (x.read_json("config.json") for x in (RunFolder(folder), source))
    config |= {key: theirs[key] for key in _ACTIVATION if key in theirs}
    files.write_texts(folder, {**texts, "config.json": json.dumps(config, indent=2) + "\n"})


def _poolings(config: Mapping[str, Any]) -> list[str]:
    """Returns the names of the poolings: ours, or else those in the configuration."""
    modes = config.get("pooling_mode")
    if not modes:
        # Mean is the default, also if other poolings are enabled.
        flags = {"pooling_mode_mean_tokens": True, **config}
        names = {f"pooling_mode_{flag}": name for name, flag in _FLAGS.items()}
        modes = [names.get(f, f) for f in flags if f.startswith("pooling_mode_") and flags[f]]
    modes = [mode.lower() for mode in ([modes] if isinstance(modes, str) else modes)]
    return [*filter(modes.__contains__, _FLAGS), *(mode for mode in modes if mode not in _FLAGS)]
