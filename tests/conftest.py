"""Settings for the whole test run."""

import os

# Read when the native library starts its threads: on a busy machine, threads that spin cost more than they save.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
