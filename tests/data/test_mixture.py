import collections

import pytest

from agentic_jax.config import bind
from agentic_jax.data.filters import FILTERS, keep_tasks
from agentic_jax.data.mixture import mix
from agentic_jax.data.tasks import TaskStream, fingerprint
from agentic_jax.sources import TASKS
from agentic_jax.trajectory import Task


def made(count, prefix="t", answer="1"):
    return [
        Task(f"{prefix}{i}", ({"role": "user", "content": "?" * (i + 1)},), answer)
        for i in range(count)
    ]


def test_each_source_gives_its_share_in_shuffled_order():
    sources = {"math": made(50), "code": made(50)}
    tasks = mix(sources, weights={"math": 3, "code": 1}, count=40, seed=0)
    names = [task.extra["source"] for task in tasks]
    assert collections.Counter(names) == {"math": 30, "code": 10}
    assert names[:30] != ["math"] * 30
    assert len({task.id for task in tasks}) == 40
    assert all(task.id.startswith(f"{task.extra['source']}/t") for task in tasks)


def test_shares_are_rounded_to_the_whole_count():
    sources = {name: made(9) for name in "abc"}
    weights = {"a": 1, "b": 1, "c": 1}
    for count in (1, 2, 7, 8):
        assert len(mix(sources, weights=weights, count=count, seed=0)) == count


def test_a_small_source_starts_again_under_other_ids():
    tasks = mix({"a": made(3)}, weights={"a": 1}, count=7, seed=0)
    ids = sorted(task.id for task in tasks)
    first = ["a/t0", "a/t1", "a/t2"]
    assert set(first) | {f"{id}-again-1" for id in first} < set(ids)
    assert sum(id.endswith("-again-2") for id in ids) == 1


def test_a_mixture_depends_on_its_seed_only_so_a_stream_over_it_resumes():
    sources = {"math": made(20), "code": made(20)}
    options = {"weights": {"math": 1, "code": 1}, "count": 10}
    tasks = mix(sources, **options, seed=3)
    assert fingerprint(tasks) == fingerprint(mix(sources, **options, seed=3))
    assert fingerprint(tasks) != fingerprint(mix(sources, **options, seed=4))
    whole = [task.id for task in TaskStream(tasks, 5).next(23)]
    stream = TaskStream(tasks, 5)
    stream.next(13)
    resumed = TaskStream(mix(sources, **options, seed=3), 5)
    resumed.restore(stream.state())
    assert [task.id for task in resumed.next(10)] == whole[13:]


def test_sources_are_drawn_from_in_unrelated_orders():
    sources = {"a": made(50), "b": made(50)}
    tasks = mix(sources, weights={"a": 1, "b": 1}, count=20, seed=0)
    drawn = {name: set() for name in sources}
    for task in tasks:
        drawn[task.extra["source"]].add(task.id.partition("/")[2])
    assert drawn["a"] != drawn["b"]


def test_weights_without_sense_are_refused():
    with pytest.raises(ValueError, match="weights name b, sources a"):
        mix({"a": made(1)}, weights={"b": 1}, count=1, seed=0)
    with pytest.raises(ValueError, match="must be positive: {'a': 0}"):
        mix({"a": made(1)}, weights={"a": 0}, count=1, seed=0)


@pytest.mark.parametrize(
    "answer, kept",
    [
        ("17", True),
        ("-17", True),
        ("1,000", True),
        ("$42$", True),
        ("1001", False),
        ("9" * 5_000, False),
        ("0.5", False),
        ("\\frac{1}{2}", False),
        ("٣", False),
        ("1,2", False),
        ("", False),
    ],
)
def test_integer_answers_up_to_a_magnitude_are_kept(answer, kept):
    keep = bind({"name": "integer_answer", "max_magnitude": 1_000}, FILTERS)
    assert keep(Task("t", (), answer)) is kept


def test_a_filter_that_keeps_nothing_says_so():
    keep = bind({"name": "integer_answer", "max_magnitude": 0}, FILTERS)
    with pytest.raises(ValueError, match="integer_answer keeps none of 3 problems"):
        keep_tasks(made(3), keep)


def test_prompts_are_filtered_by_their_tokens(tmp_path):
    from agentic_jax.chat.template import Chat
    from agentic_jax.chat.tokenizer import train_tokenizer

    tokenizer = train_tokenizer([], vocab_size=263)
    tokenizer.save_pretrained(tmp_path)
    tasks = made(8)
    lengths = [len(Chat(tokenizer).render_prompt(task.messages)) for task in tasks]
    spec = {"name": "prompt_tokens", "tokenizer": str(tmp_path)}
    spec |= {"max_prompt_tokens": lengths[5], "reserve": lengths[1] - lengths[0]}
    assert keep_tasks(tasks, bind(spec, FILTERS)) == tasks[:5]


def test_configs_name_mixtures_and_filters():
    words = {"name": "word_problems", "split": "train", "count": 20, "seed": 0}
    easy, hard = (words | {"digits": digits} for digits in ([1, 1], [3, 3]))
    sources = {
        "easy": {"weight": 1.0, "tasks": easy},
        "hard": {"weight": 1.0, "tasks": hard},
    }
    mixture = {"name": "mixed", "sources": sources, "count": 10, "seed": 0}
    keep = {"small": {"name": "integer_answer", "max_magnitude": 81}}
    spec = {"name": "filtered", "tasks": mixture, "filters": keep}
    tasks = bind(spec, TASKS)()
    assert [task.extra["source"] for task in tasks] == ["easy"] * 5
    bad = {"easy": {"tasks": easy}}
    with pytest.raises(ValueError, match="source easy has tasks; it takes weight and"):
        bind(mixture | {"sources": bad}, TASKS)()
