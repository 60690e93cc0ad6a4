"""Build the decoder in C with sanitizers, and look for batches that it mishandles: `make fuzz` does this.

python -m tests._native.fuzz SECONDS [SEED]

Half of the time goes to plain batches, half to compressed ones. Without a finding there is a line for each. A finding
is printed: the sanitizer's report, or the batch on which C and Python disagree.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from .sanitized import Sanitized, Unavailable


def main() -> None:
    seconds = sys.argv[1]
    seed = sys.argv[2] if len(sys.argv) > 2 and sys.argv[2] else str(time.time_ns() % 1_000_000)
    with tempfile.TemporaryDirectory() as folder:
        try:
            sanitized = Sanitized(Path(folder))
        except Unavailable as error:
            sys.exit(f"nothing was looked at: {error}")
        sanitized.build()
        for fuzzer in ("guided_fuzz", "packed_fuzz"):
            half = float(seconds) / 2
            fuzz = ("-m", f"tests._native.{fuzzer}", "--seconds", str(half), "--seed", seed)
            done = sanitized.run(*fuzz, seconds=half + 600)
            print(done.stdout + done.stderr, end="")
            if done.returncode:
                sys.exit(f"found by {fuzzer} with seed {seed}")


if __name__ == "__main__":
    main()
