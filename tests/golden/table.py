"""The one table from golden files to our functions, and what is left out and why."""

from tests.golden import credit, host, losses
from tests.golden.compare import Excluded

MAPPINGS = {
    "advantages": credit.advantages,
    "answers": host.answers,
    "arpo_aepo": host.arpo_aepo,
    "entropy_logprob": losses.entropy_logprob,
    "kl": losses.kl,
    "microbatch_invariance": losses.microbatch,
    "passk_majk": host.pass_and_majority,
    "policy_loss_gspo": losses.gspo,
    "policy_loss_other": losses.other,
    "policy_loss_ppo": losses.ppo,
    "recipes_end_to_end": credit.recipe,
    "reward_overlong": host.reward_overlong,
    "reward_tool": host.reward_tool,
    "roc_selection": host.roc_selection,
    "rollout_correction": losses.correction,
    "tepo": credit.tepo,
}

EXCLUDED = (
    Excluded(
        "reward_overlong",
        "*",
        "code_unclamped",
        "the released code has no floor at -1; ours is the paper's piecewise form",
    ),
    Excluded(
        "arpo_aepo",
        "*",
        "arpo_paper_P",
        "always null: the paper states neither alpha, beta nor tau",
    ),
    Excluded(
        "advantages",
        "*",
        "reinforce_pp_baseline",
        "with a group of one: its raw reward enters the reference's whitening",
        when=credit.has_singleton,
    ),
    Excluded(
        "advantages",
        "*",
        "grpo_vectorized_f32",
        "the reference's float32 rounds the difference between the rewards away",
        when=credit.is_below_float32,
    ),
)
