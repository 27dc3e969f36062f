"""Words of messages: counts, and causes without what TensorFlow adds."""

import pytest
import tensorflow as tf

from bert_tf.base.errors import UserError, counted, reason
from bert_tf.training import explained_errors

_CUT = "are longer and were truncated"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((1, "file"), "1 file"),
        ((0, "file"), "0 files"),
        ((5574, "row"), "5,574 rows"),
        ((1, "text", _CUT, 1), "1 of 1 text is longer and was truncated"),
        ((2, "text", _CUT, 2), "2 of 2 texts are longer and were truncated"),
        ((1, "row", "(5.0%) are long, but have", 9), "1 of 9 rows (5.0%) is long, but has"),
    ],
)
def test_counts(arguments, expected):
    assert counted(*arguments) == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "{{function_node __wrapped__IteratorGetNext_output_types_5_device_/job:localhost/"
            "device:CPU:0}} corrupted record at 12 [Op:IteratorGetNext] name: ",
            "corrupted record at 12",
        ),
        (
            "Graph execution error:\n\nDetected at node dense/MatMul defined at (most recent call "
            "last):\n<stack traces unavailable>\nOOM when allocating tensor\n\t [[{{node dense/"
            "MatMul}}]]\nHint: If you want to see a list of allocated tensors when OOM happens, "
            "add report_tensor_allocations_upon_oom to RunOptions.",
            "OOM when allocating tensor",
        ),
        ("Graph execution error:\n\nat line 3\nNode: 'Cast'\nno file a", "no file a"),
        ("values [[1, 2]] of {a}", "values [[1, 2]] of {a}"),
        ("", "DataLossError"),
    ],
)
def test_causes_have_no_words_of_tensorflow(message, expected):
    error = tf.errors.DataLossError(None, None, message)
    assert reason(error) == expected
    with pytest.raises(UserError) as caught, explained_errors():
        raise error
    assert str(caught.value).endswith(f"create it again. (TensorFlow says: {expected})")
