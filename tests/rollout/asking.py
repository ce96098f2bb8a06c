"""Requests of a server, and how its answers are read."""

import asyncio
import contextlib
import io

import aiohttp
import numpy as np

PROMPT = [70, 71, 72, 73, 74]
FREE = {"max_new_tokens": 8, "sampling_seed": 3, "ignore_eos": True}
SIZES = {"rows": 2, "length": 64, "dtype": "float32", "deterministic": True}


async def ask(url, route, body=None):
    async with aiohttp.ClientSession() as http:
        raw = isinstance(body, bytes)
        data = {"data": io.BytesIO(body)} if raw else {"json": body}
        async with http.request(
            "GET" if body is None else "POST", url + route, **data
        ) as answer:
            is_json = answer.content_type == "application/json"
            return answer.status, await (answer.json() if is_json else answer.text())


def generate(call, **fields):
    body = {"input_ids": PROMPT, "sampling_params": FREE, "return_logprob": True}
    status, answer = call("/generate", {**body, **fields})
    assert status == 200, answer
    return answer


def logprobs(answer):
    return np.array([x[0] for x in answer["meta_info"]["output_token_logprobs"]])


@contextlib.asynccontextmanager
async def held(url, *rids):
    """Requests that run or wait on a paused server; they are gone at the end."""
    await ask(url, "/pause_generation", {"mode": "in_place"})
    async with asyncio.TaskGroup() as group:
        body = {"input_ids": PROMPT, "sampling_params": FREE}
        tasks = [
            group.create_task(ask(url, "/generate", {**body, "rid": rid}))
            for rid in rids
        ]
        while (await loads(url))["num_waiting_reqs"] < len(rids):
            await asyncio.sleep(0.01)
        try:
            yield tasks
        finally:
            await ask(url, "/continue_generation", {})


async def loads(url):
    return (await ask(url, "/v1/loads"))[1]["loads"][0]
