"""What options affect, and the rules that follow from it."""

import dataclasses
import os
import typing
from pathlib import Path

import numpy as np
import pytest

from bert_tf.base.errors import UserError
from bert_tf.options import NerOptions, SquadOptions, registry
from bert_tf.options.declare import (
    DATA,
    DEVICES,
    DURATION,
    MODEL,
    NOTHING,
    PATH,
    ROWS,
    RUN,
    WEIGHTS,
    Options,
    check_values,
    option,
)
from bert_tf.options.shared import TrainingOptions

CLASSES = [script.options_class for script in registry.SCRIPTS.values()]
TRAINING = [cls for cls in CLASSES if issubclass(cls, TrainingOptions)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Base(Options, affects=WEIGHTS):
    rate: float = option(0.1, "")
    length: int = option(8, "", affects=ROWS | MODEL)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Own(Base):
    """A user's own class, which does not say what its option affects."""

    stride: int = option(2, "")


def test_numbers_of_numpy_become_plain():
    own = Own(stride=np.int64(3), rate=np.float32(0.5))
    assert (type(own.stride), type(own.rate)) == (int, float)
    check_values(own)
    assert own == Own(stride=3, rate=0.5)


def test_options_affect_what_their_class_says_and_otherwise_rows():
    assert Own.names(WEIGHTS) == ["rate"]
    assert Own.names(ROWS) == ["length", "stride"]
    assert Own.names(ROWS, without=MODEL) == ["stride"]
    assert Own(stride=3).values(ROWS) == {"length": 8, "stride": 3}


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_overridden_options_affect_the_same(cls):
    """Except for devices: in SQuAD, padding changes weights and answers."""
    for base in cls.__mro__[1:]:
        if base is Options or not dataclasses.is_dataclass(base):
            continue
        own = {field.name: field.metadata["affects"] for field in dataclasses.fields(cls)}
        for field in dataclasses.fields(base):
            inherited = field.metadata["affects"] & ~DEVICES
            assert own[field.name] & inherited == inherited, field.name


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_paths_are_strings(cls):
    types = typing.get_type_hints(cls)
    assert all(str in (types[name], *typing.get_args(types[name])) for name in cls.names(PATH))
    suffixes = ("_dir", "_file", "_checkpoint")
    named = [f.name for f in dataclasses.fields(cls) if f.name.endswith(suffixes)]
    if cls in TRAINING:
        assert {*named} <= {*cls.names(PATH)}


def test_flags_that_resuming_runs_compare():
    common = """train_batch_size learning_rate random_seed adam_bias_correction precision
        gradient_clip_scope gradient_accumulation_steps length_grouping max_seq_length"""
    fine_tuning = """do_lower_case pretokenized special_tokens strip_accents num_train_epochs
        warmup_proportion best_metric eval_every freeze_layers init_layers teacher
        teacher_temperature teacher_weight"""
    own = {
        "run_pretraining": """num_train_steps num_warmup_steps optimizer use_next_sentence
            max_predictions_per_seq eval_every""",
        "run_classifier": "class_weights long_text pooling problem_type",
        "run_squad": "doc_stride max_query_length version_2_with_negative fixed_shapes",
        "run_ner": "doc_context",
        "run_multiple_choice": "",
    }
    for script, names in own.items():
        cls = registry.SCRIPTS[script].options_class
        shared = fine_tuning if registry.SCRIPTS[script].make_task else ""
        compared = cls.names(ROWS | WEIGHTS | DURATION)
        assert sorted(compared) == sorted(f"{common} {shared} {names}".split()), script


def test_flags_that_rewrite_records():
    model = {"max_seq_length", "do_lower_case", "pretokenized", "special_tokens", "strip_accents"}
    assert {*SquadOptions.names(ROWS)} == {*model, "doc_stride", "max_query_length"}
    assert {*NerOptions.names(ROWS)} == {*model, "doc_context"}
    cls = registry.SCRIPTS["run_classifier"].options_class
    assert {*cls.names(ROWS)} == {*model, "long_text", "problem_type"}
    # Flags that say how to read the data do not matter if the examples are the same.
    assert not {*cls.names(ROWS)} & {*cls.names(DATA)}


@pytest.mark.parametrize("cls", TRAINING, ids=lambda cls: cls.__name__)
def test_each_flag_affects_something(cls):
    """So that workers compare it, and `--help` can group it."""
    nothing = {*(f.name for f in dataclasses.fields(cls))} - {*cls.names(~NOTHING)}
    assert nothing == {"save_checkpoints_steps", "keep_checkpoint_max", "verbose_logging"}
    assert "output_dir" in cls.names(RUN)
    assert not {*cls.names(DEVICES)} & {*cls.names(ROWS | DATA)}


def test_lists_mappings_and_numbers_become_text():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class SomeOptions(Options):
        text: str | None = option(None, "text")
        number: int = option(1, "number")
        either: str | float = option(1.0, "either")
        switch: str = option("auto", "switch", choices=("auto", "true", "false"))

    assert SomeOptions(switch=True).switch == "true"
    assert SomeOptions(switch=False).switch == "false"
    assert SomeOptions(text="~/a").text == "~/a"
    assert SomeOptions(either="~/a").either == os.path.expanduser("~/a")
    for value, expected in (
        (["a", 1, True], "a,1,true"),
        (("a",), "a"),
        (Path("a"), "a"),
        (np.array([1, 2]), "1,2"),
        ({"a:b": 2.5, True: 1}, "a:b:2.5,true:1"),
        (-1, "-1"),
        (np.float64(0.5), "0.5"),
        (None, None),
        (False, False),
    ):
        assert SomeOptions(text=value).text == expected
    unchanged = SomeOptions(number=[1], either=2)
    assert (unchanged.number, unchanged.either) == ([1], 2)
    for value in (["a,b"], {"a,b": 1}):
        with pytest.raises(UserError, match="--text: 'a,b' has a comma"):
            SomeOptions(text=value)
