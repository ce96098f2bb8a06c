"""Finds answers in text and compares them; pure functions."""

import collections
import re
import string
from collections.abc import Sequence
from fractions import Fraction

MAX_ANSWER_CHARS = 1_000  # Longer answers equal only themselves.

_NUMBER = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+"
_NUMERIC = re.compile(
    rf"(?P<sign>[+-]?)(?:(?P<number>{_NUMBER})(?:/(?P<under>\d+))?"
    r"|\\frac(?:\{(?P<top>\d+)\}|(?P<top1>\d))(?:\{(?P<bottom>\d+)\}|(?P<bottom1>\d)))",
    re.ASCII,
)
_TUPLE = re.compile(r"([(\[])(.*)([)\]])", re.DOTALL)
_WORDS = re.compile(r"[A-Za-z]{3,}(?:\s+[A-Za-z]+)*")
# What Minerva's normalisation takes out of an answer, in this order.
_MINERVA_UNITS = (
    "square ways integers dollars mph inches ft hours km units \\ldots sue points feet"
    " minutes digits cents degrees cm gm pounds meters meals edges students"
    " childrentickets multiples \\text{s} \\text{.} \\text{\ns} \\text{}^2 \\text{}^3"
    ' \\text{\n} \\text{} \\mathrm{th} ^\\circ ^{\\circ} \\; ,\\! {,} " \\dots'
).split(" ")
_MINERVA_REWRITES = {
    "an ": "",
    "a ": "",
    ".$": "$",
    "\\$": "",
    "\\ ": "",
    " ": "",
    "mbox": "text",
    ",\\text{and}": ",",
    "\\text{and}": ",",
    "\\text{m}": "\\text{}",
}


def extract_boxed(text: str, *, last_chars: int | None = None) -> str | None:
    r"""Content of the last \boxed{...}, braces matched; None if there is none.

    An escaped brace (\{) counts for nothing, and a last box that never closes is no
    answer, whatever stood before it.

    Args:
        text: searched from its end.
        last_chars: look at no more than this many characters at the end, as the papers'
            strict mode does with 100.
    """
    if last_chars is not None:
        text = text[-last_chars:]
    opening = "\\boxed{"
    start = text.rfind(opening)
    if start < 0:
        return None
    start += len(opening)
    depth = 1
    for match in re.finditer(r"\\.|[{}]", text[start:], flags=re.DOTALL):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if depth == 0:
            return text[start : start + match.start()]
    return None


def extract_tag(text: str, tag: str) -> str | None:
    """Stripped content of the last <tag>...</tag>; None if there is none."""
    closing = text.rfind(f"</{tag}>")
    opening = text.rfind(f"<{tag}>", 0, max(closing, 0))
    return text[opening + len(tag) + 2 : closing].strip() if opening >= 0 else None


def equal_strict(prediction: str, gold: str) -> bool:
    """Same characters, the papers' strict mode: 0.50 is not 0.5."""
    return prediction == gold


def extract_answer_line(text: str) -> str | None:
    """What follows the last "Answer:" on its line, in any case; None without one."""
    lines = re.findall(r"answer[ \t]*:[ \t]*([^\n]+)", text, flags=re.IGNORECASE)
    return lines[-1] if lines else None


def equal_minerva(prediction: str, gold: str) -> bool:
    """Same characters after Minerva's normalisation: units, text and spaces removed.

    Source: Minerva (arXiv:2206.14858), appendix D.1.
    """
    return _minerva(prediction) == _minerva(gold)


def equal_quickly(prediction: str, gold: str) -> bool | None:
    """Equality where strings or exact rational numbers decide; None where they do not.

    Integers of any length, decimals, thousands separators and fractions are compared
    exactly, alone and in tuples or intervals of the same form. Golds that are words are
    compared as words, without case: as mathematics, words are products of letters, and
    every anagram would be right. An answer of more than MAX_ANSWER_CHARS characters
    equals only itself.
    """
    prediction, gold = _tidy(prediction), _tidy(gold)
    if _squeeze(prediction) == _squeeze(gold):
        return bool(gold)
    if not prediction or max(len(prediction), len(gold)) > MAX_ANSWER_CHARS:
        return False
    if _WORDS.fullmatch(gold):
        return " ".join(prediction.lower().split()) == " ".join(gold.lower().split())
    (form, values), (gold_form, gold_values) = _rationals(prediction), _rationals(gold)
    comparable = form == gold_form and None not in (*values, *gold_values)
    return values == gold_values if comparable else None


def equal_math(prediction: str, gold: str) -> bool:
    r"""Mathematical equivalence of two answers in LaTeX or plain text.

    Slow cases take for ever and some raise: call it through grading.Grader, which runs
    it in a process that can be killed. The main thread is not needed.

    Args:
        prediction: content of the policy's box, without the box.
        gold: expected answer; a \boxed{} around it is taken off.

    Raises:
        Exception: whatever the library raises on what it cannot digest.

    Source: the math-verify library.
    """
    quick = equal_quickly(prediction, gold)
    if quick is not None:
        return quick
    from math_verify import parse, verify  # Slow to import: sympy.

    parsed = [
        parse(f"\\boxed{{{_tidy(x)}}}", parsing_timeout=None, raise_on_error=True)
        for x in (gold, prediction)
    ]
    return verify(*parsed, timeout_seconds=None, raise_on_error=True)


def equal_choice(prediction: str, gold: str) -> bool:
    r"""Same option letter: C, c, (C), \text{C}, "C." and "C: Paris" all choose C."""
    letters = [
        re.match(r"\(?([A-Za-z])(?:$|[).:\s])", _tidy(x)) for x in (prediction, gold)
    ]
    return all(letters) and letters[0][1].upper() == letters[1][1].upper()


def normalize_answer(text: str) -> str:
    """Lower case, no punctuation, no articles, single spaces.

    Source: the SQuAD evaluation (arXiv:1606.05250).
    """
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def exact_match(prediction: str, golds: Sequence[str]) -> bool:
    """Whether the normalised prediction equals one of the golds; an empty one never."""
    prediction = normalize_answer(prediction)
    return bool(prediction) and prediction in map(normalize_answer, golds)


def sub_exact_match(prediction: str, golds: Sequence[str]) -> bool:
    """Whether the normalised prediction contains one of the golds."""
    prediction = normalize_answer(prediction)
    return any(gold and gold in prediction for gold in map(normalize_answer, golds))


def f1(prediction: str, golds: Sequence[str]) -> float:
    """Best token F1 over the golds, in [0, 1], counting repeated tokens.

    If one side is yes, no or noanswer, the other must be the same. Empty text scores 0.

    Source: SQuAD (arXiv:1606.05250), with the yes/no rule of HotpotQA
    (arXiv:1809.09600).
    """
    prediction = normalize_answer(prediction)
    return max(_f1(prediction, normalize_answer(gold)) for gold in golds)


def arpo_composite(text: str, golds: Sequence[str]) -> float:
    r"""ARPO's reward: -1 for bad form, else F1, plus 0.1 if it used both tools well.

    Good form: at least one <think>, exactly one <answer> with a \boxed in it, every tag
    closed, and one <result> for each <search> or <python>. The bonus needs F1 > 0.

    Args:
        text: the whole response, tool results included: they are part of the form.
        golds: accepted answers.

    Source: ARPO (arXiv:2507.19849), section 3; matches its released code on the cases
    that are tested.
    """
    tags = ("think", "search", "python", "result", "answer")
    count = {tag: text.count(f"<{tag}>") for tag in tags}
    closed = all(text.count(f"</{tag}>") == count[tag] for tag in tags)
    answered = count["search"] + count["python"] == count["result"]
    box = extract_boxed(extract_tag(text, "answer") or "")
    single = count["think"] >= 1 and count["answer"] == 1
    if not (closed and answered and single) or box is None:
        return -1.0
    score = f1(box, golds)
    return score + 0.1 if score > 0 and count["search"] and count["python"] else score


def _f1(prediction: str, gold: str) -> float:
    """Token F1 of two normalised strings."""
    fixed = {"yes", "no", "noanswer"}
    if prediction != gold and (prediction in fixed or gold in fixed):
        return 0.0
    predicted, wanted = prediction.split(), gold.split()
    shared = (collections.Counter(predicted) & collections.Counter(wanted)).total()
    return 2 * shared / (len(predicted) + len(wanted)) if shared else 0.0


def _minerva(answer: str) -> str:
    """The answer as Minerva's evaluation compares it."""
    answer = answer.split("=")[-1]
    for old, new in _MINERVA_REWRITES.items():
        answer = answer.replace(old, new)
    for unit in _MINERVA_UNITS:
        answer = answer.replace(unit, "")
    answer = re.sub(r".*?\$(.*?)\$.*", r"$\1$", answer)
    answer = re.sub(r"\\(?:text|textbf|overline|boxed)\{(.*?)\}", r"\1", answer)
    answer = re.sub(r"frac([^{])(.)", r"frac{\1}{\2}", answer)
    answer = re.sub(r"sqrt([^{])", r"sqrt{\1}", answer).replace("$", "")
    digits = answer.replace(",", "")
    return digits if digits.isdigit() else answer.strip()


def _tidy(answer: str) -> str:
    r"""The answer without box, dollars, LaTeX spacing, \text around it, full stop."""
    if (boxed := extract_boxed(answer)) is not None:
        answer = boxed
    answer = re.sub(r"\\[,!;: ]|\\?\$", "", answer).replace("{,}", ",").strip()
    answer = re.sub(r"\\[dt]frac", r"\\frac", answer)
    if match := re.fullmatch(r"\\(?:text|mathrm|textbf|mbox)\{([^{}]*)\}", answer):
        answer = match[1]
    return answer.strip().removesuffix(".").strip()


def _squeeze(text: str) -> str:
    """The text without white space, except between digits: 1 1/2 is not 11/2."""
    return re.sub(r"(?<![0-9])\s+|\s+(?![0-9])", "", text)


def _rationals(answer: str) -> tuple[str, tuple[Fraction | None, ...]]:
    """The form of a number, or of a tuple or interval of them, and the exact values.

    "(,]" is the form of (1, 2]; what is no number has the value None.
    """
    answer = re.sub(r"\\(?:left|right)(?=[()\[\]])", "", answer)
    inside = _TUPLE.fullmatch(answer)
    parts = inside[2].split(",") if inside else [answer]
    if len(parts) < 2:
        return "", (_rational(answer),)
    form = inside[1] + "," * (len(parts) - 1) + inside[3]
    return form, tuple(map(_rational, parts))


def _rational(answer: str) -> Fraction | None:
    """The exact value of a number or simple fraction; None for anything else."""
    match = _NUMERIC.fullmatch(_squeeze(answer))
    if not match:
        return None
    top = match["number"] or match["top"] or match["top1"]
    bottom = match["under"] or match["bottom"] or match["bottom1"] or "1"
    if int(bottom) == 0:
        return None
    value = Fraction(top.replace(",", "")) / int(bottom)
    return -value if match["sign"] == "-" else value
