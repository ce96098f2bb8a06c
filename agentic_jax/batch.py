"""The four pytrees that enter jitted functions.

Index t of every [B, T] array is about token t: its log-probability given the tokens
before it, its mask, its advantage. The first token of a segment is never sampled.
"""

from dataclasses import dataclass

import jax


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Batch:
    """Packed trajectories, every field [B, T].

    Attributes:
        tokens: int32 token ids, 0 in padding.
        positions: int32 position within its own trajectory, 0 in padding.
        segment_ids: int32, which trajectory of the row, from 1; 0 is padding.
        prompt_ids: int32, which prompt of its optimizer update, from 1; 0 is padding.
        turn_ids: int32, from 1, of the turn that a token was sampled in or that its
            tool result answers; 0 is prompt or padding.
        mask: bool, the policy sampled this token.
        behavior_logprobs: float32, the engine's log-probability, 0 where mask is False.
        turn_calls: int32, tool calls that the turn of this token made; 0 in prompt and
            padding. Turn-level credit counts calls with it.
        call_mask: bool, sampled token that is tool-call markup; only needed to leave
            markup out of turn entropies.
        shared_mask: bool, sampled token of a turn that another trajectory of the group
            has too and is trained on: credit sees it, the loss does not.
    """

    tokens: jax.Array
    positions: jax.Array
    segment_ids: jax.Array
    prompt_ids: jax.Array
    turn_ids: jax.Array
    mask: jax.Array
    behavior_logprobs: jax.Array
    turn_calls: jax.Array | None = None
    call_mask: jax.Array | None = None
    shared_mask: jax.Array | None = None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Outcome:
    """What each sample of each prompt earned, every field [P, G].

    Attributes:
        reward: float32 shaped reward.
        score: float32 correctness in [0, 1].
        num_calls: int32 tool calls made.
        valid: bool, False for a faulted or missing sample: it gets advantage 0 and
            enters no statistic.
        row: int32 row of the Batch that holds the sample.
        segment: int32 segment id in that row; 0 where not valid.
        components: [R, P, G] float32, the parts that the reward was summed from, or
            None; only credit that normalises each part by itself reads them.
    """

    reward: jax.Array
    score: jax.Array
    num_calls: jax.Array
    valid: jax.Array
    row: jax.Array
    segment: jax.Array
    components: jax.Array | None = None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Scores:
    """What the trainer's own kernels say of a Batch, every field [B, T] float32.

    Attributes:
        logprobs: nats, at the sampling temperature; 0 where mask is False.
        entropy: nats, over the whole vocabulary, at the same temperature.
        ref_logprobs: of the frozen reference, or None where no KL term is asked for.
    """

    logprobs: jax.Array
    entropy: jax.Array
    ref_logprobs: jax.Array | None = None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Targets:
    """All that a policy loss needs besides the current log-probabilities, [B, T].

    Attributes:
        mask: bool, the policy sampled this token.
        segment_ids: int32, which trajectory of the row; 0 is padding.
        old_logprobs: of the policy that is being improved, trainer kernels, nats.
        advantages: credit per token.
        weights: aggregation weights of one optimizer step, times any correction.
        ref_logprobs: of the frozen reference, or None.
    """

    mask: jax.Array
    segment_ids: jax.Array
    old_logprobs: jax.Array
    advantages: jax.Array
    weights: jax.Array
    ref_logprobs: jax.Array | None = None
