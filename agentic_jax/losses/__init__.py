"""Pure functions of arrays; these tables give the slots of a recipe their short names.

See docs/losses.md for the signature of each slot and the contract that all keep.
"""

from agentic_jax.losses import (
    aggregation,
    arpo,
    clipping,
    correction,
    credit,
    kl,
    ratios,
    rejection,
    schedules,
    surrogates,
    tepo,
)

LOG_RATIOS = {
    "token": ratios.token_log_ratio,
    "sequence": ratios.sequence_log_ratio,
    "sequence_token": ratios.sequence_token_log_ratio,
    "geometric": ratios.geometric_log_ratio,
}
SURROGATES = {
    "clipped": clipping.clipped_surrogate,
    "dual_clipped": clipping.dual_clipped_surrogate,
    "gradient_keeping": clipping.gradient_keeping_surrogate,
    "unclipped": surrogates.unclipped_surrogate,
    "reinforce": surrogates.reinforce_surrogate,
    "cispo": surrogates.cispo_surrogate,
    "sapo": surrogates.sapo_surrogate,
}
SCHEDULES = {
    "linear": schedules.linear,
    "from_entropy": schedules.from_entropy,
}
AGGREGATIONS = {
    "token_mean": aggregation.token_mean_weights,
    "group_token_mean": aggregation.group_token_mean_weights,
    "sequence_mean": aggregation.sequence_mean_weights,
    "sequence_sum": aggregation.sequence_sum_weights,
    "fixed_length": aggregation.fixed_length_weights,
}
KLS = {
    "none": kl.no_kl,
    "k1": kl.k1,
    "abs": kl.absolute,
    "k2": kl.k2,
    "k3": kl.k3,
    "k3_clamped": kl.k3_clamped,
    "k3_plus": kl.k3_plus,
}
CORRECTIONS = {
    "none": correction.no_correction,
    "tis": correction.truncated_importance,
    "tis_sequence": correction.truncated_sequence_importance,
    "mis": correction.masked_importance,
    "mis_sequence": correction.masked_sequence_importance,
    "icepop": correction.masked_importance,
    "rejection_mask": rejection.rejection_mask,
    "geometric_mask": rejection.geometric_mask,
    "opsm": rejection.off_policy_mask,
    "probability_mask": rejection.probability_mask,
}
CREDITS = {
    "group_normalized": credit.group_normalized,
    "centered": credit.group_centered,
    "leave_one_out": credit.group_leave_one_out,
    "opo": credit.group_length_weighted,
    "batch_scaled": credit.batch_scaled,
    "reinforce_plus_plus_baseline": credit.token_whitened,
    "per_reward_normalized": credit.per_reward_normalized,
    "tepo_sparse": tepo.tepo_sparse,
    "tepo_dense": tepo.tepo_dense,
    "arpo_hard": arpo.arpo_hard,
    "aepo": credit.entropy_scaled,
}
