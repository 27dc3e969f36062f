"""`labels.txt`: the labels of a model, one per line, in the order of its outputs."""

from collections.abc import Callable, Sequence

from bert_tf import files
from bert_tf.data.cell_values import excerpt
from bert_tf.errors import UserError

LABELS_FILE = "labels.txt"


def to_text(labels: Sequence[str]) -> str:
    """Returns the content of a `labels.txt`."""
    return "".join(f"{label}\n" for label in labels)


def read(path: str, is_label: Callable[[str], bool] | None = None) -> list[str]:
    """Reads a label map. `is_label` validates each line; by default, only blank lines are invalid.

    Raises:
        UserError: the file cannot be read, is empty, or contains a duplicate or invalid label.
    """
    labels = files.read_small_file_lines(path)
    for number, line in enumerate(labels, start=1):
        if not (is_label(line) if is_label else line.strip()):
            problem = f"invalid label {excerpt(line)}"
        elif line in labels[: number - 1]:
            problem = f"duplicate label {line}"
        else:
            continue
        raise UserError(f"{path}:{number}: {problem}. Use the file that the training run wrote")
    if not labels:
        raise UserError(f"{path} contains no labels. Use the file that the training run wrote")
    return labels
