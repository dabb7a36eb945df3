"""Settings for the whole test run."""

import os

# Read when the native library starts its threads: on a busy machine, long spinning costs more than it saves.
os.environ.setdefault("GOMP_SPINCOUNT", "20000")
