"""The command line, killed with SIGKILL right after the N-th record was committed: `killed_cli.py N ARGS…`."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from reharness.recipes.cli import main
from reharness.solver.ledger import Ledger

left = int(sys.argv.pop(1))
put = Ledger.put


def put_and_die(self: Ledger, kind: Any, key: str, record: dict[str, Any]) -> None:
    global left
    put(self, kind, key, record)
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)


Ledger.put = put_and_die  # type: ignore[method-assign]
main()
