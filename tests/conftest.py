"""Settings for the whole test run."""

import os

# Read when the native library starts its threads: on a busy machine, threads that spin for long cost more than they save.
os.environ.setdefault("GOMP_SPINCOUNT", "20000")
