"""The error tree of reharness. Every message says what was wrong, where, and what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ReharnessError(Exception):
    """Root of every error that reharness raises on purpose; the CLI prints its text without a traceback."""


class ConfigError(ReharnessError):
    """A configuration value, key, file or command-line argument cannot be used."""


class UnknownNameError(ConfigError):
    """A name (task, format, proposer, parameter, …) is not known; the text names the nearest valid one."""

    def __init__(self, kind: str, name: str, valid: Iterable[str], where: str = "") -> None:
        names = sorted(valid)
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"valid: {', '.join(names[:12])}"
        if not near and len(names) > 12:
            hint += f", … ({len(names)} in all)"
        super().__init__(f"unknown {kind} {name!r}{f' in {where}' if where else ''}; {hint}")
        self.kind, self.name, self.near = kind, name, near


class TaskError(ReharnessError):
    """A task cannot be built: bad parameters, a generator that fails, overlapping question sets."""


class HarnessError(ReharnessError):
    """A harness source is unusable as loaded (syntax, no `run`, marker line, over a cap)."""


class SandboxUnavailable(ReharnessError):
    """No rung of the sandbox ladder passed its self-test here; running unsandboxed is refused."""


class EngineError(ReharnessError):
    """A language-model engine cannot be started or reached, or answered with an error that retries did not cure.

    During a run this becomes an *infra* outcome; it is never a score.
    """


class ProposerError(ReharnessError):
    """A proposer broke its protocol or failed; nothing is lost, and the same command goes on once it is mended."""


class RewardError(ReharnessError):
    """Rewards or groups that training must not see: a wrong number, no number, or contexts mixed in a group."""


class LedgerError(ReharnessError):
    """The run directory or its ledger is locked, corrupt, read-only, full, or belongs to another configuration."""


class InfraLimitError(ReharnessError):
    """Infrastructure failures passed their limit; the run stops with nothing lost."""
