"""Synthetic workdirs."""

import json

from agentic_jax.monitor.trace import write_trace


class Words:
    """A vocabulary that grows with the texts it is shown; its decode is exact."""

    def __init__(self):
        self.words = []

    def ids(self, texts):
        for text in texts:
            if text not in self.words:
                self.words.append(text)
        return [self.words.index(text) for text in texts]

    def decode(self, ids):
        return "".join(self.words[i] for i in ids)


def trace_row(words, *, group=0, sample=0, score=1.0, code="print(2*3)", output="6"):
    """A row of two turns: a call and its result, then an answer.

    The entropies of the first turn are 0.5, of the second 0.1; the trainer's and the
    engine's log-probabilities differ in the last token only.
    """
    prompt = ["<user>", "2*3?", "\n"]
    call, result, answer = ["<call>", code], ["<result>", output], ["It is ", "6"]
    parts = [(prompt, 0, 0), (call, 1, 1), (result, 1, 0), (answer, 2, 1)]
    turn = [k for texts, k, _ in parts for _ in texts]
    mask = [m for texts, _, m in parts for _ in texts]
    entropy = [(0.0, 0.5, 0.1)[k] * m for k, m in zip(turn, mask, strict=True)]
    return {
        "group": group,
        "sample": sample,
        "reward": score - 0.25,
        "tokens": {
            "ids": words.ids([text for texts, _, _ in parts for text in texts]),
            "mask": mask,
            "turn": turn,
            "engine_logprobs": [-0.5 * m for m in mask],
            "trainer_logprobs": [-0.5 * m for m in mask[:-1]] + [-0.75],
            "entropy": entropy,
            "advantage": [(score * 2 - 1) * m for m in mask],
        },
        "task": {
            "id": f"task-{group}",
            "messages": [{"role": "user", "content": f"2*3? ({group})"}],
            "answer": "6",
            "domain": "math",
            "extra": {},
        },
        "turns": [
            {"weight_version": 4, "calls": [call_record(code, output)]},
            {"weight_version": 5, "calls": []},
        ],
        "stop": "answer",
        "score": score,
        "fault": "",
    }


def call_record(code, output, status="ok"):
    call = {"name": "python", "arguments": {"code": code}, "problem": ""}
    return {
        "call": call,
        "result": {"text": output, "status": status},
        "seconds": 0.125,
    }


def fault_row(words, *, group, sample):
    """A trajectory that was lost: nothing of it was packed."""
    row = trace_row(words, group=group, sample=sample, score=0.0)
    empty = {name: [] for name in row["tokens"]}
    return {**row, "tokens": empty, "stop": "fault", "score": None, "fault": "no pool"}


def write_run(workdir, *, steps, groups=2, size=2, seed=0, trace_steps=None):
    """A workdir with curves; the second sample of each group is wrong."""
    workdir.mkdir(parents=True, exist_ok=True)
    config = {"seed": seed, "kl": {"name": "none"}, "model": {"path": f"m{seed}"}}
    (workdir / "config.json").write_text(json.dumps(config))
    metrics = [
        {"step": s, "reward/mean": s / steps + seed, "policy/entropy": 1 / (s + 1)}
        for s in range(steps)
    ]
    lines = "".join(json.dumps(row) + "\n" for row in metrics)
    (workdir / "metrics.jsonl").write_text(lines)
    for step in range(steps) if trace_steps is None else trace_steps:
        words = Words()
        rows = [
            trace_row(words, group=g, sample=s, score=float(s != 1))
            for g in range(groups)
            for s in range(size)
        ]
        write_trace(workdir, step, rows, decode=words.decode)
    return workdir
