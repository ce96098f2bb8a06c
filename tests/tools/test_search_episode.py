import asyncio
import json
import pathlib

import pytest

from agentic_jax.chat.template import Chat
from agentic_jax.chat.tokenizer import train_tokenizer
from agentic_jax.data.layouts import read_dataset
from agentic_jax.data.teacher import play_teacher
from agentic_jax.rewards.verifiers import Services, by_task
from agentic_jax.rollout.episode import Limits
from agentic_jax.services import make_tools

SHARED = pathlib.Path(__file__).resolve().parents[3] / "shared" / "data"
LIMITS = Limits(max_prompt_tokens=2_000, max_response_tokens=8_000, max_turns=3)


@pytest.mark.skipif(not SHARED.exists(), reason="no data beside the repository")
def test_questions_are_searched_answered_and_scored_end_to_end():
    tasks = read_dataset("hotpotqa", path=SHARED / "hotpotqa_distractor100.jsonl")[:10]
    path = str(SHARED / "wiki_passages.jsonl")
    search = {"name": "search", "path": path, "k": 5, "max_chars": 2_000}
    tools = make_tools({"search": search | {"timeout": 60.0}}, None)
    chat = Chat(train_tokenizer([], vocab_size=263), tuple(tools.values()))
    turns = {}
    for task in tasks:
        query = {"query": task.messages[0]["content"]}
        call = json.dumps({"name": "search", "arguments": query})
        said = f"<tool_call>\n{call}\n</tool_call>"
        turns[task.id] = [said, f"<answer>{task.answer}</answer>"]
    played = asyncio.run(
        play_teacher(
            tasks,
            turns,
            chat=chat,
            tools=tools,
            limits=LIMITS,
            concurrency=4,
            on_done=lambda trajectory: None,
        )
    )
    services = Services(decode=chat.decode)
    found = []
    for trajectory in played:
        (record,) = trajectory.calls
        assert (record.result.status, trajectory.stop) == ("ok", "answer")
        assert asyncio.run(by_task(trajectory, services, options={})) == 1.0
        titles = trajectory.task.extra["supporting_titles"]
        seen = [f"(Title: {title})" in record.result.text for title in titles]
        found.append(sum(seen) / len(seen))
        assert record.result.text in chat.decode(trajectory.turns[0].result_token_ids)
    assert sum(found) / len(found) > 0.5
