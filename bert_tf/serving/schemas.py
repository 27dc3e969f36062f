"""The bodies of requests to TensorFlow Serving, OpenAI and text-embeddings-inference (TEI).

A field that would have no effect is a mistake, except for those that clients always send.
"""

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Annotated, Any, Literal

from fastapi import HTTPException
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from bert_tf.errors import UserError
from bert_tf.serving.models import Kind

MAX_INPUTS: ContextVar[int] = ContextVar("MAX_INPUTS", default=2048)
_FIRST = ("text", "text_a", "question", "query")


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _check_names(cls, data: Any) -> Any:
        known = ", ".join(cls.model_fields)
        for name in data if isinstance(data, dict) else ():
            if name not in cls.model_fields:
                raise ValueError(f"unknown field {name[:50]}; expected {known}")
        return data

    @model_validator(mode="before")
    @classmethod
    def _check_counts(cls, data: Any) -> Any:
        """Counts inputs, words and endings before they are checked, which takes longer."""
        values = [*data.values()] if isinstance(data, dict) else []
        values += [x for value in values if isinstance(value, dict) for x in value.values()]
        count = max((len(x) for x in values if isinstance(x, list)), default=0)
        if count > (limit := MAX_INPUTS.get()):
            problem = f"The request has {count:,} inputs, more than --max_inputs={limit}"
            raise HTTPException(413, f"{problem}: send fewer at once")
        return data


class Instance(_Body):
    """An input: a text; a pair by any of these names; a context and endings; or words."""

    text: str | None = None
    text_a: str | None = None
    question: str | None = None
    query: str | None = None
    text_pair: str | None = None
    text_b: str | None = None
    context: str | None = None
    passage: str | None = None
    endings: list[str] | None = Field(default=None, fail_fast=True)
    words: list[str] | None = Field(default=None, fail_fast=True)

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
            raise UserError(f"Input {index}: expected {kind.expected}. {received}")
        return texts[0] if len(texts) == 1 else tuple(texts)


def _tag(value: Any) -> str:
    return "string" if isinstance(value, str) else "object"


# The discriminator keeps messages about one of the two from naming the other.
Input = Annotated[
    Annotated[str, Tag("string")] | Annotated[Instance, Tag("object")], Discriminator(_tag)
]


class PredictRequest(_Body):
    """TensorFlow Serving's request: `instances` in rows, or `inputs` in columns."""

    signature_name: Literal["serving_default", "pairs", ""] = "serving_default"
    instances: list[Input] = Field([], min_length=1, validate_default=True)
    inputs: dict[str, list[Any]] | list[str] | None = None

    @model_validator(mode="before")
    @classmethod
    def _to_rows(cls, data: Any) -> Any:
        """Converts columns to instances, so that these are checked in the same way."""
        columns = data.get("inputs") if isinstance(data, dict) else None
        if isinstance(columns, list):
            return {**data, "instances": columns}
        if not isinstance(columns, dict) or not all(isinstance(x, list) for x in columns.values()):
            return data
        if len({len(column) for column in columns.values()}) > 1:
            raise ValueError("the lists of inputs differ in length")
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return {**data, "instances": rows}

    def to_inputs(self, kind: Kind) -> list[Any]:
        """Returns the inputs of a `Predictor`; raises a UserError if the model takes others."""
        items = (Instance(text=x) if isinstance(x, str) else x for x in self.instances)
        return [item.to_input(kind, index) for index, item in enumerate(items)]


def describe(errors: Sequence[Any]) -> str:
    """Returns the place and the message of the innermost of pydantic's errors."""
    # An empty list is also no text, if both are allowed.
    error = max(errors, key=lambda x: (len(x["loc"]), x["type"] == "too_short"))
    if error["type"] == "json_invalid":
        return f"The body is not JSON: {error['ctx']['error']}, at character {error['loc'][-1]}"
    if error["type"] == "missing" and error["loc"] == ("body",):
        return "The body is empty: send a JSON object"
    if error["loc"] == ("body",) and isinstance(error["input"], str):
        return "The body is a JSON string: send the object itself, as with json=payload"
    # Without the names of types in a union.
    names = (str(name) for name in error["loc"] if name not in ("body", "string", "object", "str"))
    place = ".".join(name for name in names if "[" not in name)
    messages = {
        "too_short": "pass at least one text",
        "none_required": "not supported: write the prefix before each text",  # prompt_name
    }
    message = messages.get(error["type"], error["msg"].removeprefix("Value error, "))
    return f"{place or 'body'}: {message}"


Texts = str | Annotated[list[str], Field(min_length=1)]


class EmbeddingsRequest(_Body):
    """OpenAI's request for vectors."""

    input: Texts
    model: str
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, ge=1)
    user: str | None = None


class _TeiBody(_Body):
    truncate: bool = True
    truncation_direction: Literal["right", "Right"] = "right"


class EmbedRequest(_TeiBody):
    """TEI's request for vectors."""

    inputs: Texts
    normalize: bool = True
    dimensions: int | None = Field(None, ge=1)
    prompt_name: None = None


Pair = Annotated[list[str], Field(min_length=1, max_length=2)]


class ClassifyRequest(_TeiBody):
    """TEI's request for labels: a text, a pair, or several of these, each in a list."""

    inputs: str | Pair | Annotated[list[Pair], Field(min_length=1)]
    raw_scores: Literal[False] = False


class RerankRequest(_TeiBody):
    """TEI's request for scores."""

    query: str
    texts: list[str] = Field(min_length=1)
    raw_scores: bool = False
    return_text: bool = False
