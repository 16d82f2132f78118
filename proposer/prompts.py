"""What the proposer reads: the task in a line, the harness, the report, and how to answer. Pure.

Kept short enough for a 135M model with an 8k window; says enough for a 4B one.
"""

from __future__ import annotations

from reharness.envs.errors import ConfigError
from reharness.proposer.report import CountTokens, Report

SEARCH_REPLACE = """\
You improve a Python harness. It defines run(question, tools) and returns the answer as a string. Tools: \
tools.llm(prompt_or_messages, max_tokens=512, temperature=0.0) asks a small language model; tools.python(code) runs \
code and gives .stdout and .error; tools.note(text) writes to the trace. The harness may compute by itself (standard \
library only).
Read the report, say in one line what you change, then write the change:
<<<<<<< SEARCH
lines of the harness, exactly as they are
=======
the new lines
>>>>>>> REPLACE
The SEARCH lines must occur exactly once in the harness. Several blocks are allowed."""


def messages(task: str, source: str, report: Report, window: int, count_tokens: CountTokens) -> list[dict[str, str]]:
    """The proposer's messages in at most ``window`` tokens (chat template aside). The report gives way to the
    harness: it gets what the instructions and the source leave, and at least a tenth of the window.

    Raises ``ConfigError`` when instructions and source alone do not leave that much.
    """
    frame = f"Task: {task}\n\nHarness:\n```python\n{source}```\n\nReport:\n"
    left = window - count_tokens(SEARCH_REPLACE) - count_tokens(frame)
    if left < window // 10:
        raise ConfigError(
            f"the harness is too long for a context of {window} tokens: {left} are left for the report; raise `window`"
        )
    return [
        {"role": "system", "content": SEARCH_REPLACE},
        {"role": "user", "content": frame + report.render(left, count_tokens)},
    ]
