"""Problems and finished trajectories: the types of the host half."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

CallStatus = Literal["ok", "error", "timeout", "memory", "output", "bad_call", "busy"]
Stop = Literal["answer", "max_tokens", "max_turns", "fault"]


@dataclass(frozen=True)
class Task:
    """A problem.

    Attributes:
        id: unique within its source.
        messages: chat messages ({"role", "content"}) that state the problem.
        answer: expected answer; what it means belongs to the verifier.
        domain: label for per-domain metrics, such as "math".
        extra: whatever else a verifier needs, such as unit tests.
    """

    id: str
    messages: tuple[Mapping[str, str], ...]
    answer: str
    domain: str = "math"
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ToolCall:
    """One call that the policy wrote.

    Attributes:
        name: of the tool, as written; it may not exist.
        arguments: decoded arguments, or None if the call could not be parsed.
        problem: what was wrong with the call, in words for the model; "" if nothing.
    """

    name: str
    arguments: Mapping[str, Any] | None
    problem: str = ""


@dataclass(frozen=True)
class ToolResult:
    """What a tool answers: text for the model and a typed status for us."""

    text: str
    status: CallStatus


@dataclass(frozen=True)
class CallRecord:
    """A call, its result and the wall-clock seconds that it took."""

    call: ToolCall
    result: ToolResult
    seconds: float


@dataclass(frozen=True)
class Turn:
    """One stretch of sampled tokens and the tool results that answer it.

    Attributes:
        token_ids: [n] int32 sampled by the policy, stop tokens kept.
        logprobs: [n] float32, the engine's, at the sampling temperature.
        weight_version: of the policy that sampled these tokens.
        calls: what was called, in the order written.
        result_token_ids: [m] int32 appended by us, never trained.
        call_spans: the sampled tokens [start, end) that each call was written in.
        entropy: of the first tokens sampled, see branching.step_entropy; None where the
            engine told of no likeliest tokens.
    """

    token_ids: np.ndarray
    logprobs: np.ndarray
    weight_version: int
    calls: tuple[CallRecord, ...] = ()
    result_token_ids: np.ndarray = field(
        default_factory=lambda: np.zeros(0, dtype=np.int32)
    )
    call_spans: tuple[tuple[int, int], ...] = ()
    entropy: float | None = None


@dataclass(frozen=True)
class Trajectory:
    """A problem played to its end.

    Attributes:
        task: the problem.
        prompt_token_ids: [n] int32.
        turns: in order; tokens of the trajectory are prompt, then each turn's sampled
            and result ids.
        stop: why it ended; "fault" means that a service of ours failed.
        score: correctness in [0, 1]; None until verified, and on a fault.
        fault: what failed, in words; "" unless stop is "fault".
        shared_turns: leading turns that it took over from another of its group, and
            that are trained in one of the two only.
    """

    task: Task
    prompt_token_ids: np.ndarray
    turns: tuple[Turn, ...]
    stop: Stop
    score: float | None = None
    fault: str = ""
    shared_turns: int = 0

    @property
    def token_ids(self) -> np.ndarray:
        """[T] int32: all tokens in order."""
        parts = [self.prompt_token_ids]
        for turn in self.turns:
            parts += [turn.token_ids, turn.result_token_ids]
        return np.concatenate(parts).astype(np.int32)

    @property
    def calls(self) -> tuple[CallRecord, ...]:
        """Every call of every turn, in order."""
        return tuple(record for turn in self.turns for record in turn.calls)

    @property
    def num_response_tokens(self) -> int:
        """Sampled and tool-result tokens together: what a budget counts."""
        return sum(len(t.token_ids) + len(t.result_token_ids) for t in self.turns)

    @property
    def num_policy_tokens(self) -> int:
        """Sampled tokens only."""
        return sum(len(turn.token_ids) for turn in self.turns)


@dataclass(frozen=True)
class Sample:
    """A trajectory with the shaped reward that it is trained on.

    Attributes:
        trajectory: what was sampled.
        reward: shaped.
        text: what the policy wrote, decoded, without tool results; only selections
            that read text need it.
    """

    trajectory: Trajectory
    reward: float
    text: str | None = None

    @property
    def valid(self) -> bool:
        """False for a fault: it is kept for the log and never trained on."""
        return self.trajectory.stop != "fault"


def to_json(trajectory: Trajectory) -> dict[str, Any]:
    """A plain dict that json.dumps writes on one line; from_json reads it back."""
    record = dataclasses.asdict(trajectory)
    record["prompt_token_ids"] = trajectory.prompt_token_ids.tolist()
    for turn, source in zip(record["turns"], trajectory.turns, strict=True):
        turn["token_ids"] = source.token_ids.tolist()
        turn["logprobs"] = [round(float(x), 5) for x in source.logprobs]
        turn["result_token_ids"] = source.result_token_ids.tolist()
    return record


def from_json(record: Mapping[str, Any]) -> Trajectory:
    """The Trajectory that to_json wrote.

    Raises:
        ValueError: a field is missing or unknown.
    """
    try:
        task = record["task"]
        return Trajectory(
            **{
                **record,
                "task": Task(**{**task, "messages": tuple(task["messages"])}),
                "prompt_token_ids": np.asarray(record["prompt_token_ids"], np.int32),
                "turns": tuple(_turn_from_json(turn) for turn in record["turns"]),
            }
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a trajectory: {error}") from error


def _turn_from_json(record: Mapping[str, Any]) -> Turn:
    calls = tuple(
        CallRecord(
            ToolCall(**call["call"]), ToolResult(**call["result"]), call["seconds"]
        )
        for call in record["calls"]
    )
    return Turn(
        token_ids=np.asarray(record["token_ids"], np.int32),
        logprobs=np.asarray(record["logprobs"], np.float32),
        weight_version=record["weight_version"],
        calls=calls,
        result_token_ids=np.asarray(record["result_token_ids"], np.int32),
        call_spans=tuple((start, end) for start, end in record.get("call_spans", ())),
        entropy=record.get("entropy"),
    )
