#!/usr/bin/env bash
# Makes the patched sources, or makes them again when the patches or the new files changed: scripts/make_sources.sh DIR
# LOCALSPEC_LLAMA_SDIST names the pinned llama_cpp_python sdist where there is no network.
set -euo pipefail
cd "$(dirname "$0")/../ggml_patches"
case $1 in
    /*) folder=$1 ;;
    *) folder=$OLDPWD/$1 ;;
esac
beside=$(dirname "$folder")
mkdir -p "$beside"

mark=$(find backend patches src -type f ! -name '*.pyc' -exec cksum {} + | sort | cksum)
if [ -d "$folder" ] && [ "$(cat "$folder.mark" 2> /dev/null)" = "$mark" ]; then
    exit
fi

# a machine without localspec: a cache of its own, and what pip takes to download an sdist, both beside the sources
if ! python3 -c 'import platformdirs, scikit_build_core' 2> /dev/null; then
    export LOCALSPEC_HOME=${LOCALSPEC_HOME:-$beside/localspec}
    if [ -z "${LOCALSPEC_LLAMA_SDIST:-}" ]; then
        python3 -m pip install --quiet --disable-pip-version-check --no-input --upgrade --target "$beside/python" scikit-build-core
        export PYTHONPATH=$beside/python
    fi
fi
rm -rf "$folder.new"
python3 -m backend sources "$folder.new"

if [ -d "$folder" ]; then
    # files that are the same keep their times, so that only the others are compiled again
    python3 -c '
import filecmp, os, pathlib, sys
new, old = map(pathlib.Path, sys.argv[1:])
for path in new.rglob("*"):
    before = old / path.relative_to(new)
    if path.is_file() and before.is_file() and filecmp.cmp(path, before, shallow=False):
        os.utime(path, ns=(path.stat().st_atime_ns, before.stat().st_mtime_ns))' "$folder.new" "$folder"
    rm -rf "$folder"
fi
mv "$folder.new" "$folder"
echo "$mark" > "$folder.mark"
