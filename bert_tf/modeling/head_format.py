"""`HeadFormat`: how a model's head is stored in files."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal


@dataclasses.dataclass(eq=False)
class HeadFormat:
    """Describes how files store a model's head: the class attribute `head_format` of a model.

    Models without it can be trained, used and exported, but not converted to other formats. For an
    example, see `EncoderWithHead`.

    Args:
        name: name of the head, such as "span"; different for each class.
        variables: variable name in original BERT checkpoints -> name in Hugging Face transformers.
        architecture: name of the class in transformers; None if there is none.
        has_pooler: whether the class in transformers has a pooler.
        outputs: "labels" for one output per label: the constructor takes `num_labels` after
            `config`, and the first axis of the first of `variables` has this size. "one" for a
            single output, which labels do not name. "fixed" for all other heads.

    Attributes:
        model: the class that has this attribute; None if bert_tf has no class for the head.
    """

    name: str
    variables: Mapping[str, str]
    architecture: str | None = None
    has_pooler: bool = True
    outputs: Literal["labels", "one", "fixed"] = "labels"
    model: Any = dataclasses.field(default=None, init=False)

    def __set_name__(self, owner: type, name: str) -> None:
        # Python calls this when it creates the class.
        self.model = owner

    @property
    def has_labels(self) -> bool:
        """Whether configurations list labels; that of a single output is a placeholder."""
        return self.outputs != "fixed"

    def count_outputs(self, shapes: Mapping[str, Sequence[int]]) -> int:
        """Returns the number of outputs with labels; `shapes` maps variable names to shapes."""
        first = next(iter(self.variables), "")
        return [*shapes.get(first, ()), 0][0] if self.has_labels else 0
