"""The bodies of requests to TensorFlow Serving, OpenAI and text-embeddings-inference (TEI).

A field that would have no effect is a mistake, except for those that clients always send, and
those that say nothing: `null` and `{}`.
"""

import functools
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from bert_tf.base.errors import Input, UserError
from bert_tf.serving.models import Kind

_FIRST = ("text", "text_a", "question", "query")
# What a value must be, by the type of pydantic's error.
_EXPECTED = {"string_type": "a string", "list_type": "a list", "bool_type": "true or false"}
_EXPECTED |= dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "an object")
_EXPECTED |= {"int_type": "a whole number", "greater_than_equal": "at least {ge}"}
_EXPECTED |= {"literal_error": "{expected}"}


def _config(**example: Any) -> ConfigDict:
    """Returns the settings of a body, and the example of its route's description."""
    return ConfigDict(strict=True, json_schema_extra={"examples": [example]})


class _Body(BaseModel):
    model_config = ConfigDict(strict=True)

    @model_validator(mode="before")
    @classmethod
    def _check_names(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        known = _names(cls)
        # Even empty parameters say which reply a client expects.
        kept = "parameters" if "parameters" in known else None
        given = {n: x for n, x in data.items() if x is not None and (x != {} or n == kept)}
        for name in given.keys() - known:
            raise ValueError(f"unknown field {name[:50]}; expected {', '.join(known)}")
        return given


@functools.cache
def _names(body: type[_Body]) -> list[str]:
    fields = body.model_fields.items()
    return [n for name, x in fields for n in getattr(x.validation_alias, "choices", [name])]


class Instance(_Body):
    """An input: a text; a pair by any of these names; a context and endings; or words."""

    model_config = _config(text="The soup was cold.")
    text: str | None = None
    text_a: str | None = None
    question: str | None = None
    query: str | None = None
    text_pair: str | None = None
    text_b: str | None = None
    context: str | None = None
    passage: str | None = None
    endings: list[str] | None = None
    words: list[str] | None = None

    def to_input(self, kind: Kind, index: int) -> Any:
        """Returns the input of a `Predictor`; raises a UserError if the model takes others."""
        given = self.model_dump(exclude_none=True)
        received = f"Received: {' and '.join(given) or 'nothing'}"
        if kind.task == "token-classification" and [*given] == ["words"]:
            return tuple(given["words"])
        # As in the signature `pairs` of a SavedModel, an empty second text is none.
        kept = given if 1 not in kind.counts else {n for n, x in given.items() if x or n in _FIRST}
        texts = [x for name, x in given.items() if isinstance(x, str) and name in kept]
        is_choice = kind.task == "multiple-choice"
        is_valid = is_choice or sum(name in given for name in _FIRST) == 1
        texts += given.get("endings", [])
        is_valid = is_valid and is_choice == ("endings" in given) and "words" not in given
        if not is_valid or len(texts) not in kind.counts:
            raise UserError(f"expected {kind.expected}. {received}", at=Input(index))
        return texts[0] if len(texts) == 1 else tuple(texts)


class PredictRequest(_Body):
    """TensorFlow Serving's request: `instances` in rows, or `inputs` in columns."""

    model_config = _config(instances=["The soup was cold."])
    signature_name: Literal["serving_default", "pairs", ""] = "serving_default"
    instances: list[str | Instance] = Field([], min_length=1, validate_default=True, fail_fast=True)
    inputs: dict[str, list[Any]] | list[str] | None = None

    @model_validator(mode="before")
    @classmethod
    def _to_rows(cls, data: Any) -> Any:
        """Converts columns to instances, so that these are checked in the same way."""
        columns = data.get("inputs") if isinstance(data, dict) else None
        if isinstance(columns, list):
            return {**data, "instances": columns}
        if not isinstance(columns, dict):
            return data
        columns = {name: column for name, column in columns.items() if column is not None}
        if not all(isinstance(column, list) for column in columns.values()):
            return data
        if len({len(column) for column in columns.values()}) > 1:
            raise ValueError("the lists of inputs differ in length")
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return {**data, "inputs": columns, "instances": rows}

    def to_inputs(self, kind: Kind) -> list[Any]:
        """Returns the inputs of a `Predictor`; raises a UserError if the model takes others."""
        items = (Instance(text=x) if isinstance(x, str) else x for x in self.instances)
        return [item.to_input(kind, index) for index, item in enumerate(items)]


def describe(errors: Sequence[Any]) -> str:
    """Returns the place of the innermost of pydantic's errors, and what is wrong there."""
    # If several types are allowed, errors about the content come before those about the type.
    error = max(errors, key=lambda x: (len(x["loc"]), x["type"] not in _EXPECTED))
    if error["type"] == "json_invalid":
        return f"The body is not JSON: {error['ctx']['error']}, at character {error['loc'][-1]}"
    messages = {
        "missing": "is missing",
        "too_short": "pass at least one text",
        "none_required": "not supported",
        "value_error": str(error.get("ctx", {}).get("error")),
    }
    # All that is allowed in this place.
    others = [x for x in errors if _place(x) == _place(error) and x["type"] in _EXPECTED]
    expected = dict.fromkeys(_EXPECTED[x["type"]].format(**x.get("ctx", {})) for x in others)
    message = messages.get(error["type"], f"must be {' or '.join(expected)}")
    return f"{_place(error)}: {message}"


def _place(error: Any) -> str:
    # Without the names of types in a union.
    names = (str(name) for name in error["loc"] if name not in ("body", "str", "Instance"))
    return ".".join(name for name in names if "[" not in name) or "body"


Strings = Annotated[list[str], Field(min_length=1, fail_fast=True)]
Texts = str | Strings


class EmbeddingsRequest(_Body):
    """OpenAI's request for vectors."""

    model_config = _config(input=["The soup was cold."])
    input: Texts
    model: str | None = None
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, ge=1)
    user: str | None = None


class _TeiBody(_Body):
    truncate: bool = True
    truncation_direction: Literal["right", "Right"] = "right"
    model: str | None = None


class EmbedRequest(_TeiBody):
    """TEI's request for vectors."""

    model_config = _config(inputs=["The soup was cold."])
    inputs: Texts
    normalize: bool = True
    dimensions: int | None = Field(None, ge=1)
    prompt_name: None = None
    encoding_format: Literal["float"] = "float"


class ClassifyRequest(_TeiBody):
    """TEI's request for labels: a text, a pair, or several of these, each in a list."""

    model_config = _config(inputs="The soup was cold.")
    inputs: str | Strings | Annotated[list[Strings], Field(min_length=1)]
    raw_scores: Literal[False] = False
    parameters: dict[str, None] | None = None  # as Hugging Face's client sends it


def _text_of(document: Any) -> Any:
    given = [n for n, x in document.items() if x is not None] if isinstance(document, dict) else []
    return document["text"] if given == ["text"] else document


Documents = Annotated[list[Annotated[str, BeforeValidator(_text_of)]], Field(min_length=1)]
_TEXTS = AliasChoices("texts", "documents")
_RETURN_TEXT = AliasChoices("return_text", "return_documents")


class RerankRequest(_TeiBody):
    """TEI's request for scores, and, by other names, that of Cohere and Jina."""

    model_config = _config(query="cold soup", texts=["The soup was cold.", "We loved the wine."])
    query: str
    texts: Documents = Field(validation_alias=_TEXTS)
    raw_scores: bool = False
    return_text: bool = Field(False, validation_alias=_RETURN_TEXT)
    top_n: int | None = Field(None, ge=1)
