"""Label schemes: how the labels of words mark entities.

A model learns labels in BIO or BIOES (`B-PER`, or `B` if there is only one type). Other schemes are
converted to these, word by word: IOB1 (CoNLL-2003), where an entity starts with `B-` only if it
directly follows another of the same type; BILOU and BMES; IO, which has types only; the brackets of
CoNLL-2012, `(PERSON*`, `*`, `*)`; and `B_PER` or `PER-B` for `B-PER`. Plain labels, such as parts
of speech, stay as they are. Words outside of entities have the label `O` or, in a file without it,
the only label that has no prefix, such as `OTHER` or `0`.
"""

import re
from collections.abc import Collection, Mapping, Sequence

from bert_tf.base.errors import counted, excerpt, shortened

OUTSIDE = "O"
AUTO, ENTITIES, PLAIN = "auto", "entities", "plain"
# Matches the labels that a model learns. Without an entity type (`B`, `I`), all entities have the
# same, unnamed type.
is_label = re.compile("O|[BIES](-.+)?").fullmatch
# Scheme -> the prefixes it may have besides O.
_PREFIXES = {"BIO": "BI", "BIOES": "BIES", "BILOU": "BILU", "BMES": "BMES", "BMEWO": "BMEW"}
_AS_BIOES = str.maketrans("LUWM", "ESSI")
_IO, _BRACKETS = "IO", "brackets"
_DASH = "-\u2010-\u2015\u2212"  # also those that text programs write for a hyphen
_LABEL = re.compile(rf"([BIESLUMW])|([BIESLUMWbieslumw])[{_DASH}_](.+)|(.+)[{_DASH}_]([BIESLUMW])")
_BRACKET = re.compile(r"(\([^()*|\d][^()*|]*)?\*?\)?")
# Labels of this form are hardly ever plain ones.
_is_marked = re.compile(rf"[BIESLUM][{_DASH}].*|\(.*\*|\*\)*").fullmatch


def type_of(label: str) -> str:
    """Returns the entity type of a label; entities of one unnamed type have the labels B and I."""
    return label if label == OUTSIDE else label.partition("-")[2] or "entity"


def find_outside(labels: Collection[str]) -> str:
    """Returns the label of words outside of entities: `O` or, without it, the only unmarked one."""
    unmarked = [label for label in {*labels} if "" in _parse(label)]
    is_other = OUTSIDE not in labels and len(unmarked) == 1 < len({*labels})
    return unmarked[0] if is_other and not _parse(unmarked[0])[0] else OUTSIDE


def find_scheme(counts: Mapping[str, int], known_as_entities: bool = False) -> str | None:
    """Returns the scheme that all labels fit, given their numbers of words; None if none does.

    Labels without a prefix are types of entities (IO) if `known_as_entities`, or if most words
    have the label O.
    """
    names = counts.keys() - {find_outside(counts)}
    if OUTSIDE not in counts and all(label and _BRACKET.fullmatch(label) for label in names):
        return _BRACKETS
    prefixes = {_parse(label)[0] for label in names}
    if scheme := next((name for name, x in _PREFIXES.items() if prefixes <= {*x}), None):
        return scheme
    has_types = not any(_is_marked(name) or name.isdecimal() for name in names)
    is_most = max(counts, key=lambda label: counts[label]) == OUTSIDE
    return _IO if has_types and (is_most or (known_as_entities and OUTSIDE in counts)) else None


def explain_misfits(counts: Mapping[str, int]) -> str:
    """Says which labels do not fit their scheme, and what to do; "" if most are in no scheme."""
    num_marked = sum(n for label, n in counts.items() if _is_marked(label) or label == OUTSIDE)
    if not 2 * num_marked > sum(counts.values()) > counts.get(OUTSIDE, 0):
        return ""
    if nested := next((label for label in counts if label.count("(") > 1), None):
        return f"Brackets must not be nested, as in {excerpt(nested)}"
    misfits = {
        scheme: [x for x in counts if x != OUTSIDE and _parse(x)[0] not in {*prefixes}]
        for scheme, prefixes in _PREFIXES.items()
    }
    nearest = min(misfits, key=lambda scheme: sum(counts[x] for x in misfits[scheme]))
    odd = sorted(misfits[nearest], key=lambda label: -counts[label])
    names = shortened([f"{excerpt(x)} ({counted(counts[x], 'word')})" for x in odd], 5)
    return f"All other labels are in {nearest}, but not {names}"


def convert(labels: Sequence[str], sentence_starts: Sequence[int], scheme: str) -> list[str]:
    """Converts the labels of all words from a scheme to BIO or BIOES, or returns plain labels."""
    if scheme == PLAIN:
        return list(labels)
    if scheme == _BRACKETS:
        return _from_brackets(labels, sentence_starts)
    outside = find_outside(labels)
    new = {outside: OUTSIDE}
    for label in {*labels} - {outside}:
        prefix, name = ("I", label) if scheme == _IO else _parse(label)
        new[label] = f"{prefix.translate(_AS_BIOES)}{name and '-'}{name}"
    return to_bio([new[label] for label in labels], sentence_starts)


def _parse(label: str) -> tuple[str, str]:
    """Splits a label into prefix and type; the prefix is "" if it has none."""
    match = _LABEL.fullmatch(label)
    if not match:
        return "", label
    alone, prefix, type_after, type_before, suffix = match.groups()
    return (alone or prefix or suffix).upper(), type_after or type_before or ""


def _from_brackets(labels: Sequence[str], sentence_starts: Sequence[int]) -> list[str]:
    starts, entity_type = set(sentence_starts), ""
    converted: list[str] = []
    for index, label in enumerate(labels):
        new_type = label.strip("(*)")
        entity_type = new_type or ("" if index in starts else entity_type)
        converted.append(f"{'B' if new_type else 'I'}-{entity_type}" if entity_type else OUTSIDE)
        if not label.endswith("*"):
            entity_type = ""
    return converted


def to_bio(labels: Sequence[str], sentence_starts: Sequence[int]) -> list[str]:
    """Converts the labels of all words from IOB1 to BIO; labels in BIO or BIOES do not change."""
    if any(label[0] in "ES" for label in set(labels)):
        return list(labels)
    starts, previous = set(sentence_starts), OUTSIDE
    converted: list[str] = []
    for index, label in enumerate(labels):
        continues = index not in starts and previous != OUTSIDE and previous[1:] == label[1:]
        converted.append(f"B{label[1:]}" if label[0] == "I" and not continues else label)
        previous = label
    return converted
