"""What launch.curate does unless it is told otherwise: options of its commands.

Source of 8 samples, of the bins and of dropping 0% and 100%: "Demystifying RL in
Agentic Reasoning" (arXiv:2510.11701), section 3.3. Everything else is ours.

    python -m launch.curate sft --config=configs/quickstart.py --out=runs/sft_data \
        --curation.sft.samples=2
"""

from ml_collections.config_dict import ConfigDict


def get_config() -> ConfigDict:
    """One section a command; "stitched" uses that of "sft"."""
    return ConfigDict(
        {
            "sft": {
                "player": {"name": "engine"},
                "problems": 0,
                "samples": 4,
                "tokenizer": "",
                "filters": {
                    "correct": {"name": "correct", "at_least": 1.0},
                    "well_formed": {"name": "well_formed"},
                    "max_tokens": {"name": "max_tokens", "limit": 32_768},
                },
                "scorer": {"name": "none"},
                "least_score": 0.0,
                "most_per_problem": 0,
                "most_per_source": 0,
            },
            "rl": {
                "player": {"name": "engine"},
                "problems": 0,
                "samples": 8,
                "target": {"name": "none"},
                "count": 0,
                "previous": "",
            },
        }
    )
