"""Checks of the inputs of a `Predictor`."""

import pytest

from bert_tf.base.errors import UserError
from bert_tf.finetuning.prediction import TextCheck, require_texts
from bert_tf.tokenization import FullTokenizer

UNKNOWN = "这本书很好"


@pytest.fixture
def check(tmp_path):
    (tmp_path / "vocab.txt").write_text("[UNK]\nthe\nfilm\n")
    return TextCheck(FullTokenizer(str(tmp_path / "vocab.txt")))


@pytest.mark.parametrize(
    ("calls", "warning"),
    [
        ([[UNKNOWN] * 2] * 3, "Inputs: 100.0% of the tokens (10 of 10) are [UNK]; most frequent"),
        # Too few unknown words in each of the calls.
        ([["书 书"]] * 5, "Inputs: 100.0% of the tokens (6 of 6) are [UNK]"),
        ([[("the film", UNKNOWN)] * 3], "Inputs: 71.4% of the tokens (15 of 21) are [UNK]"),
        ([["the film"] * 40, ["1", "2"] * 20], "Inputs: 40 of 40 texts are numbers, dates or ids"),
        ([["the", "nan"]] * 2, "Inputs: 1 of 2 texts is nan, null or none, such as 'nan'"),
    ],
)
def test_texts_are_checked_once(check, caplog, calls, warning):
    for inputs in calls:
        check(inputs)
    assert sum(warning in message for message in caplog.messages) == 1


@pytest.mark.parametrize(
    "calls",
    [
        [["the film"]] * 3,
        [["1999"], ["the film"]],
        # A few odd inputs of many.
        [["the film"] * 40, [UNKNOWN]],
        [[], [()], [{"text": UNKNOWN}, 3]],
    ],
)
def test_other_texts_do_not_warn(check, caplog, calls):
    for inputs in calls:
        check(inputs)
    assert not caplog.text


@pytest.mark.parametrize("row", [(1, "good", "the film"), ("1", "good", "the film"), (1, "film")])
def test_row_of_a_table(row):
    message = r'Input 0: expected a text. Received: \(.*\)\. Of a table, pass .* as df\["text"\]'
    with pytest.raises(UserError, match=message):
        require_texts([row], [1, 2], "a text")
