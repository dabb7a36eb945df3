#!/usr/bin/env bash
# Makes the patched sources in a new folder: scripts/make_sources.sh DIR
# LOCALSPEC_LLAMA_SDIST names the pinned llama_cpp_python sdist where there is no network.
set -euo pipefail
cd "$(dirname "$0")/../ggml_patches"
case $1 in
    /*) folder=$1 ;;
    *) folder=$OLDPWD/$1 ;;
esac
beside=$(dirname "$folder")
mkdir -p "$beside"
# a machine without localspec: a cache of its own, and what pip takes to download an sdist, both beside the sources
if ! python3 -c 'import platformdirs, scikit_build_core' 2> /dev/null; then
    export LOCALSPEC_HOME=${LOCALSPEC_HOME:-$beside/localspec}
    if [ -z "${LOCALSPEC_LLAMA_SDIST:-}" ]; then
        python3 -m pip install --quiet --disable-pip-version-check --no-input --upgrade --target "$beside/python" scikit-build-core
        export PYTHONPATH=$beside/python
    fi
fi
python3 -m backend sources "$folder"
