"""Problems that reasoning-gym makes, which its own scorers grade."""

from collections.abc import Mapping
from typing import Any

from agentic_jax.data.tasks import user_messages
from agentic_jax.trajectory import Task


def reasoning_gym(
    *,
    dataset: str,
    count: int,
    seed: int,
    options: Mapping[str, Any],
    system: str = "",
    instruction: str = "",
) -> list[Task]:
    """The first `count` problems of one of reasoning-gym's generators.

    Args:
        dataset: its name, such as "leg_counting".
        count: how many.
        seed: of the generator; other seeds give other problems.
        options: of the generator, such as {"max_animals": 5}.
        system: system message put first; "" puts none.
        instruction: put after each question on a line of its own.

    Returns:
        Tasks for the verifier "reasoning_gym", which makes the same problem again from
        extra["reasoning_gym"] and scores with it.

    Raises:
        ImportError: the library is missing; the message says how to install it.
        ValueError: the library knows no such generator, option or value.
    """
    try:
        import reasoning_gym as gym  # Slow, and only needed here.
    except ImportError as error:
        raise ImportError(
            "reasoning_gym needs: pip install 'agentic_jax[data]'"
        ) from error
    settings = {**options, "seed": seed, "size": count}
    try:
        problems = gym.create_dataset(dataset, **settings)
    except (TypeError, AssertionError) as error:  # What its configs raise.
        raise ValueError(f"{dataset} does not take {settings}: {error}") from error
    return [
        Task(
            id=f"{dataset}-{seed}-{i}",
            messages=user_messages(
                problems[i]["question"], instruction=instruction, system=system
            ),
            answer=str(problems[i]["answer"] or ""),
            domain=dataset,
            extra={
                "verifier": "reasoning_gym",
                "reasoning_gym": {"dataset": dataset, "options": settings, "index": i},
            },
        )
        for i in range(count)
    ]
