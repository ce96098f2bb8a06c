import asyncio
import dataclasses

import numpy as np
import pytest

from agentic_jax.config import bind
from agentic_jax.rewards.grading import Grader, GradingTimeout
from agentic_jax.rewards.verifiers import VERIFIERS, Services, policy_text
from agentic_jax.trajectory import Task, Trajectory, Turn, from_json, to_json


def decode(ids):
    return bytes(ids.tolist()).decode("utf-8", "replace")


def encode(text):
    return np.frombuffer(text.encode(), np.uint8).astype(np.int32)


def played(*texts: tuple[str, str], answer="4", **extra) -> Trajectory:
    """A trajectory of (policy text, tool text) turns."""
    turns = tuple(
        Turn(encode(said), np.zeros(len(encode(said)), np.float32), 0, (), encode(tool))
        for said, tool in texts
    )
    task = Task("t", (), answer, extra=extra)
    return Trajectory(task, encode("Example: \\boxed{4}"), turns, "answer")


@pytest.fixture(scope="module")
def services():
    grader = Grader(workers=1)
    yield Services(decode=decode, grader=grader)
    grader.close()


def score(trajectory, services, name="math", **options):
    verifier = bind({"name": name, **options}, VERIFIERS)
    return asyncio.run(verifier(trajectory, services))


def test_the_last_box_of_the_policy_counts(services):
    assert score(played(("\\boxed{3} no, \\boxed{4}", "")), services) == 1.0
    assert score(played(("\\boxed{4} no, \\boxed{3}", "")), services) == 0.0
    assert score(played(("\\boxed{4}", "8"), ("so it is", "")), services) == 1.0


def test_tool_output_and_prompt_never_grade(services):
    assert score(played(("print it", "\\boxed{4}"), ("done", "")), services) == 0.0
    assert score(played(("\\boxed{4}", "\\boxed{5}"), ("", "")), services) == 1.0


def test_no_answer_is_composed_across_a_tool_result(services):
    halves = played(("\\box", "x"), ("ed{4}", ""))
    assert "\\boxed" not in policy_text(halves, decode)
    assert score(halves, services) == 0.0


def test_no_answer_scores_zero_once_and_asks_nobody(services):
    before = services.grader.counts
    for trajectory in (played(("I do not know", "")), played()):
        assert score(trajectory, services) == 0.0
    assert services.grader.counts == before


def test_a_score_of_zero_is_a_score_and_none_is_none():
    wrong = dataclasses.replace(played(("no", "")), score=0.0)
    assert from_json(to_json(wrong)).score == 0.0
    assert from_json(to_json(played(("no", "")))).score is None


def test_equivalence_and_strictness(services):
    half = played(("\\boxed{0.50}", ""), answer="\\frac{1}{2}")
    assert score(half, services) == 1.0
    assert score(half, services, equality="strict") == 0.0
    square = played(("\\boxed{(x+1)^2}", ""), answer="\\boxed{x^2+2x+1}")
    assert score(square, services) == 1.0
    late = played(("\\boxed{4}" + "." * 92, ""))
    options = {"equality": "strict", "last_chars": 100}
    assert score(late, services, equality="strict") == 1.0
    assert score(late, services, **options) == 0.0


def test_answers_in_tags(services):
    tagged = played(("<answer> 4 </answer>", ""))
    assert score(tagged, services, extract="answer_tag") == 1.0
    assert score(tagged, services) == 0.0


def test_a_verifier_that_cannot_decide_raises_instead_of_scoring_zero(services):
    class Stuck:
        async def grade(self, prediction, gold):
            raise GradingTimeout("too long")

    stuck = dataclasses.replace(services, grader=Stuck())
    with pytest.raises(GradingTimeout):
        score(played(("\\boxed{4}", "")), stuck)
    with pytest.raises(ValueError, match="needs Services.grader"):
        score(played(("\\boxed{4}", "")), Services(decode=decode))


def test_choices(services):
    assert score(played(("\\boxed{(c)}", ""), answer="C"), services, "choice") == 1.0
    assert score(played(("\\boxed{B}", ""), answer="C"), services, "choice") == 0.0
    assert score(played(("C", ""), answer="C"), services, "choice") == 0.0


def test_short_answers_take_the_best_accepted_answer(services):
    said = ("<answer>New York</answer>", "")
    options = {"name": "short_answer_f1"}
    # "New York" against "New York City": precision 1, recall 2/3.
    assert score(played(said, answer="NYC"), services, **options) == 0.0
    both = played(said, answer="NYC", answers=["NYC", "New York City"])
    assert score(both, services, **options) == pytest.approx(0.8)
    assert score(played(("x", ""), answer="x"), services, **options) == 0.0


@pytest.mark.parametrize("option", [{"extract": "box"}, {"equality": "same"}])
def test_unknown_options_are_refused(services, option):
    with pytest.raises(ValueError, match="known:"):
        score(played(("\\boxed{4}", "")), services, **option)


def test_short_answers_by_exact_match_after_normalisation(services):
    said = ("<answer>The Eiffel Tower.</answer>", "")
    options = {"name": "short_answer_em"}
    assert score(played(said, answer="eiffel tower"), services, **options) == 1.0
    assert score(played(said, answer="tower"), services, **options) == 0.0
    both = played(said, answer="x", answers=["tower", "Eiffel tower"])
    assert score(both, services, **options) == 1.0
    assert score(played(("Paris", ""), answer="Paris"), services, **options) == 0.0
