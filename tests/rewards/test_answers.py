import json
import pathlib

import pytest

from agentic_jax.rewards import answers

GOLDEN = pathlib.Path(__file__).resolve().parents[3] / "shared" / "golden"


@pytest.mark.parametrize(
    "text, content",
    [
        (r"so \boxed{42}.", "42"),
        (r"\boxed{1} then \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\text{if } x=\{1,\{2\}\}}", r"\text{if } x=\{1,\{2\}\}"),
        (r"\boxed{\{1}", r"\{1"),
        (r"\boxed{a \\}", r"a \\"),
        (r"\boxed{\boxed{3}}", "3"),
        (r"\boxed{}", ""),
        (r"\boxed{1", None),
        (r"\boxed{1} or \boxed{2", None),
        (r"\boxed 7", None),
        ("none", None),
        ("", None),
    ],
)
def test_the_last_box_is_matched_brace_by_brace(text, content):
    assert answers.extract_boxed(text) == content


def test_strict_mode_looks_at_the_end_only():
    text = "\\boxed{5}" + "x" * 92
    assert answers.extract_boxed(text, last_chars=100) is None
    assert answers.extract_boxed(text, last_chars=101) == "5"


@pytest.mark.parametrize(
    "text, content",
    [
        ("<answer>1</answer> <answer> Paris </answer>", "Paris"),
        ("<answer>1</answer><answer>2", "1"),
        ("</answer><answer>", None),
        ("<answer></answer>", ""),
        ("no", None),
    ],
)
def test_the_last_closed_tag_is_the_answer(text, content):
    assert answers.extract_tag(text, "answer") == content


def test_strict_equality_compares_characters():
    assert answers.equal_strict("1/2", "1/2")
    assert not answers.equal_strict("0.50", "0.5")
    assert not answers.equal_strict(" 42 ", "42")


@pytest.mark.parametrize(
    "text, line",
    [("Answer: 7\nanswer : 8 cm\n", "8 cm"), ("Answer:\n7", None), ("7", None)],
)
def test_the_last_answer_line_counts(text, line):
    assert answers.extract_answer_line(text) == line


@pytest.mark.parametrize(
    "prediction, gold, equal",
    [
        ("7 cm", "7", True),
        ("$x = 7$", "7", True),
        ("1,234", "1234", True),
        ("\\frac12", "\\frac{1}{2}", True),
        ("\\text{a bee}", "bee", True),
        ("\\sqrt3", "\\sqrt{3}", True),
        ("0.5", "\\frac{1}{2}", False),
    ],
)
def test_minerva_equality_ignores_units_and_text(prediction, gold, equal):
    assert answers.equal_minerva(prediction, gold) is equal


SAME = [
    "1/2",
    "0.5",
    ".5",
    "\\frac{1}{2}",
    "\\frac12",
    "\\dfrac{1}{2}",
    "\\tfrac{1}{2}",
]


@pytest.mark.parametrize(
    "prediction, gold, equal",
    [(a, b, True) for a in SAME for b in SAME]
    + [
        ("\\frac{3}{4}", "0.75", True),
        ("9007199254740993", "9007199254740992", False),
        ("1" + "0" * 900, "1" + "0" * 900, True),
        ("1,234", "1234", True),
        ("1{,}234", "1\\,234.0", True),
        ("\\$12.", "12", True),
        ("-3", "3", False),
        ("+3", "3", True),
        ("5", "\\boxed{5}", True),
        ("(1,2)", "(1, 2)", True),
        ("(1,2)", "12", None),
        ("(1,2)", "(1,3)", False),
        ("(1, \\frac12)", "\\left(1, 0.5\\right)", True),
        ("[1,2)", "[1,2]", None),
        ("(1,2)", "(1,2,3)", None),
        ("(1,234)", "1234", None),
        ("(1,234)", "(1234)", None),
        ("(1)", "1", None),
        ("(1,x)", "(1,2)", None),
        ("(1,(2,3))", "(1,(2,4))", None),
        ("12", "1,2", None),
        ("1 1/2", "11/2", None),
        ("1/0", "1", None),
        ("\\frac{1}{0}", "1", None),
        ("٣", "3", None),
        ("9**9**9**9", "1", None),
        ("\\text{Evelyn}", "evelyn", True),
        ("nylevE", "Evelyn", False),
        ("", "5", False),
        ("", "", False),
        ("\\sqrt{" * 2_000 + "}" * 2_000, "1", False),
    ],
)
def test_quick_equality_decides_words_and_rational_numbers(prediction, gold, equal):
    assert answers.equal_quickly(prediction, gold) is equal


@pytest.mark.parametrize(
    "prediction, gold, equal",
    [
        ("(1,2)", "12", False),
        ("12", "(1,2)", False),
        ("x^2+2x+1", "(x+1)^2", True),
        ("\\sqrt{2}/2", "\\frac{1}{\\sqrt{2}}", True),
        ("\\left(3, \\frac{\\pi}{2}\\right)", "(3,\\pi/2)", True),
        ("x=5", "5", True),
        ("50\\%", "0.5", True),
        ("\\sqrt{2}", "\\sqrt{3}", False),
    ],
)
def test_mathematical_equality(prediction, gold, equal):
    assert answers.equal_math(prediction, gold) is equal


@pytest.mark.parametrize(
    "prediction, gold, equal",
    [
        ("C", "C", True),
        ("c", "C", True),
        ("(C)", "C", True),
        ("\\text{C}", "C", True),
        ("C. Paris", "C", True),
        ("B", "C", False),
        ("Cat", "C", False),
        ("", "C", False),
    ],
)
def test_choices_are_letters(prediction, gold, equal):
    assert answers.equal_choice(prediction, gold) is equal


@pytest.mark.parametrize(
    "prediction, golds, f1, exact, contained",
    [
        ("Paris", ["Paris"], 1.0, True, True),
        ("the Paris!", ["paris"], 1.0, True, True),
        ("Paris France", ["Paris"], 2 / 3, False, True),  # P 1/2, R 1
        ("NYC", ["New York City", "NYC"], 1.0, True, True),
        ("a b b", ["b b c"], 0.8, False, False),  # "a" is an article: P 2/2, R 2/3
        ("yes it is", ["yes"], 0.0, False, True),
        ("yes", ["no"], 0.0, False, False),
        ("", ["x"], 0.0, False, False),
        ("the", ["a"], 0.0, False, False),
    ],
)
def test_short_answers(prediction, golds, f1, exact, contained):
    assert answers.f1(prediction, golds) == pytest.approx(f1, rel=1e-12)
    assert answers.exact_match(prediction, golds) is exact
    assert answers.sub_exact_match(prediction, golds) is contained


THINK, SEARCH = "<think>a</think>", "<search>q</search><result>r</result>"
PYTHON, PARIS = (
    "<python>1</python><result>1</result>",
    "<answer>\\boxed{Paris}</answer>",
)


@pytest.mark.parametrize(
    "text, reward",
    [
        (THINK + SEARCH + PARIS, 1.0),
        (THINK + SEARCH + PYTHON + PARIS, 1.1),
        (THINK + SEARCH + PYTHON + PARIS.replace("Paris", "Rome"), 0.0),
        (SEARCH + PARIS, -1.0),
        (THINK + PARIS + PARIS, -1.0),
        (THINK + "<answer>Paris</answer>", -1.0),
        (THINK + "<search>q</search>" + PARIS, -1.0),
        ("<think>" + THINK + PARIS, -1.0),
    ],
)
def test_arpo_rewards_form_then_f1_then_both_tools(text, reward):
    assert answers.arpo_composite(text, ["Paris"]) == pytest.approx(reward, rel=1e-12)


@pytest.mark.skipif(not GOLDEN.exists(), reason="no goldens beside the repository")
def test_agrees_with_the_reference_answers():
    cases = json.loads((GOLDEN / "answers.json").read_text())["cases"]
    for case in cases:
        given, wanted = case["inputs"], case["outputs"]
        if "strict_box" in wanted:
            box = answers.extract_boxed(given["solution"], last_chars=100)
            line = answers.extract_answer_line(given["solution"])
            gold = given["ground_truth"]
            assert box == wanted["strict_box"]["pred"]
            assert (box == gold) is wanted["strict_box"]["acc"]
            assert (line or "[INVALID]") == wanted["minerva"]["pred"]
        elif "subem" in wanted:
            text, golds = given["prediction"], given["gold"]
            assert answers.f1(text, golds) == pytest.approx(wanted["f1"], rel=1e-9)
            assert answers.exact_match(text, golds) == wanted["em"]
            assert answers.sub_exact_match(text, golds) == wanted["subem"]
        elif "score" in wanted:
            reward = answers.arpo_composite(given["solution"], given["gold"])
            assert reward == pytest.approx(wanted["score"], rel=1e-9)
