"""Label schemes: which one labels have, and their conversion."""

import pytest

from bert_tf.tasks.token_classification.schemes import convert, explain_misfits, find_scheme


def counts(labels):
    return {label: labels.count(label) for label in labels}


@pytest.mark.parametrize(
    ("labels", "scheme", "converted"),
    [
        ("B-A I-A O B-B", "BIO", None),
        ("I-A I-A B-A O", "BIO", "B-A I-A B-A O"),
        ("B-A I-A E-A S-B O", "BIOES", None),
        ("B-A I-A L-A U-B O", "BILOU", "B-A I-A E-A S-B O"),
        ("B-A M-A E-A S-B O", "BMES", "B-A I-A E-A S-B O"),
        ("B M E S", "BMES", "B I E S"),
        ("B-A M-A E-A W-B O", "BMEWO", "B-A I-A E-A S-B O"),
        ("A A O B-A O O", None, None),
        ("PER PER O LOC O O", "IO", "B-PER I-PER O B-LOC O O"),
        ("I-PER I-PER O I-LOC", "BIO", "B-PER I-PER O B-LOC"),
        ("(A* *) * (B) (A* * *)", "brackets", "B-A I-A O B-B B-A I-A I-A"),
        ("B_A I_A O E_A", "BIOES", "B-A I-A O E-A"),
        ("A_B A_I O", "BIO", "B-A I-A O"),
        ("B-A I-A OTHER OTHER", "BIO", "B-A I-A O O"),
        ("0 U-A 0 B-A L-A", "BILOU", "O S-A O B-A E-A"),
        ("A_B A_I none", "BIO", "B-A I-A O"),
        ("b-A i-A o B\u2013B", "BIO", "B-A I-A O B-B"),
        ("B-A OTHER O", None, None),
        ("B-A OTHER NONE", None, None),
        ("OTHER PER LOC", None, None),
        ("OTHER OTHER", None, None),
        ("DT NN O VB", None, None),
        ("(12 12) - -", None, None),
    ],
)
def test_schemes(labels, scheme, converted):
    names = labels.split()
    assert find_scheme(counts(names)) == scheme
    if scheme:
        assert convert(names, [0, len(names)], scheme) == (converted or labels).split()


def test_brackets_end_with_the_sentence():
    assert convert(["(A*", "*", "*)"], [0, 1, 3], "brackets") == ["B-A", "O", "O"]


def test_types_without_prefix_are_entities_if_the_model_is_for_entities():
    assert find_scheme(counts(["PER", "PER", "O"])) is None
    assert find_scheme(counts(["PER", "PER", "O"]), known_as_entities=True) == "IO"
    assert find_scheme(counts(["NN", "DT"]), known_as_entities=True) is None


def test_misfits_are_named():
    labels = ["B-A", "L-A", "U-A", "O", "E-A", "X-A", "X-A"]
    expected = "All other labels are in BILOU, but not 'X-A' (2 words), 'E-A' (1 word)"
    assert explain_misfits(counts(labels)) == expected
    assert explain_misfits(counts(["0", "1", "0"])) == ""
    assert explain_misfits(counts(["DT", "NN", "B-A", "O"])) == ""
