"""`reharness demo`: the whole path on real questions with the embedded model, in a few minutes on two cores."""

from __future__ import annotations

from reharness.eval.experiment import AdaptConfig
from reharness.proposer.factory import ProposerConfig

TASKS = ("chain_sum?exact=true", "spell_backward?exact=true", "group_anagrams?exact=true")
"""Train families with headroom; nothing unseen is touched."""


def demo_config() -> AdaptConfig:
    """Move search, and beside it the embedded model as it comes, untrained: it is expected to write no valid edit."""
    return AdaptConfig(
        tasks=TASKS,
        proposers=(
            ProposerConfig(name="move_search", label="move search"),
            ProposerConfig(name="model", label="untrained model", max_tokens=128, temperature=0.8),
        ),
        rounds=2,
        proposals=8,
        dev=8,
        held_out=16,
        window=1024,
    )
