"""The command line, killed with SIGKILL right after a record was committed: `killed_cli.py N ARGS…` after the N-th
record, `killed_cli.py KIND:N ARGS…` after the N-th of a kind."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from reharness.recipes.cli import main
from reharness.solver.ledger import Ledger

wanted, _, number = sys.argv.pop(1).rpartition(":")
left = int(number)
put = Ledger.put


def put_and_die(self: Ledger, kind: Any, key: str, record: dict[str, Any]) -> None:
    global left
    put(self, kind, key, record)
    left -= kind == wanted or not wanted
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)


Ledger.put = put_and_die  # type: ignore[method-assign]
main()
