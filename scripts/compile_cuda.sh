#!/usr/bin/env bash
# Compiles the patched CUDA back end, without a GPU, and prints what was compiled.
#
#   scripts/compile_cuda.sh [options] [ARCH...]
#
#   ARCH          75 80 86 89 90 100 120, ... (default: these seven; 100 and 120 need CUDA 12.8 or newer)
#   --only-ours   only the .cu files that localspec adds or patches, instead of the whole back end
#   --together    one build with code for all architectures, instead of one for each: a file is read once
#   --quick       device code with few optimisations (-Ofast-compile=max, CUDA 12.9 or newer): for whether it compiles
#   --jobs N      compilers at a time (default: all CPUs)
#   --work DIR    where sources, objects and packages go (default: build/cuda in the repository)
#   --sources DIR patched sources made before, instead of those of this repository
#
# What was compiled before is compiled again only where it changed, so a run that was stopped goes on where it was. nvcc is
# that of CUDACXX, PATH, CUDA_HOME or /usr/local/cuda*; what a toolkit lacks (cuBLAS, or all of it) comes from pip's packages
# nvidia-*. Needs Python 3.10, CMake 3.21, Ninja and a C++ compiler. Exit status: 0 when everything asked for was compiled.
set -euo pipefail
scripts=$(cd "$(dirname "$0")" && pwd)
repository=${scripts%/*}
# shellcheck source=scripts/cuda_toolkit.sh
source "$scripts/cuda_toolkit.sh"

archs=() jobs=$(getconf _NPROCESSORS_ONLN) work=$repository/build/cuda sources='' only_ours=0 together=0 quick=0
while [ $# -gt 0 ]; do
    case $1 in
        --only-ours) only_ours=1 ;;
        --together) together=1 ;;
        --quick) quick=1 ;;
        --jobs) jobs=$2 && shift ;;
        --work) work=$2 && shift ;;
        --sources) sources=$2 && shift ;;
        [0-9]*) archs+=("$1") ;;
        -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p;}' "$0" && exit ;;
        *) echo "compile_cuda.sh: unknown argument $1 (--help tells which there are)" >&2 && exit 2 ;;
    esac
    shift
done
mkdir -p "$work"
work=$(cd "$work" && pwd)
find_cuda "$work/pip"

usable() { # whether this nvcc compiles for an architecture
    "$NVCC" --list-gpu-arch | grep -qx "compute_${1%[af]}"
}
if [ ${#archs[@]} -eq 0 ]; then
    archs=(75 80 86 89 90 100 120)
fi

if [ -z "$sources" ]; then
    sources=$work/sources
    "$scripts/make_sources.sh" "$sources"
fi
backend=vendor/llama.cpp/ggml/src/ggml-cuda

# the .cu files that are new or patched
ours() {
    local patches=$repository/ggml_patches
    {
        (cd "$patches/src/$backend" 2> /dev/null && find . -name '*.cu' | sed 's|^\./||') || true
        sed -n "s|^+++ b/$backend/\(.*\.cu\)\$|\1|p" "$patches"/patches/*.patch
        echo ggml-cuda.cu
    } | sort -u
}

launchers=()
if command -v ccache > /dev/null; then
    export CCACHE_BASEDIR=$work CCACHE_NOHASHDIR=1
    launchers=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache)
fi

flags=()
if [ $quick = 1 ]; then
    "$NVCC" --help | grep -e --Ofast-compile > /dev/null || { echo "compile_cuda.sh: --quick needs CUDA 12.9 or newer, this is $CUDA_VERSION" >&2 && exit 2; }
    flags=(-DCMAKE_CUDA_FLAGS=-Ofast-compile=max)
fi

# one build, for one or more architectures: prints the line of the table
compile() {
    local arch name build objects result=ok file start=$SECONDS targets=() library=- real=() label
    for arch; do
        usable "$arch" || { printf '%-7s %s\n' "sm_$arch" "not known to this nvcc" && return 1; }
        real+=("$arch-real")
    done
    name=sm_$(IFS=_ && echo "$*")$([ $quick = 1 ] && echo -quick || true)
    label=$([ $# -gt 1 ] && echo "$# archs" || echo "sm_$1")
    build=$work/$name
    if ! cmake -G Ninja -S "$sources" -B "$build" -DCMAKE_BUILD_TYPE=Release -DSKBUILD_PLATLIB_DIR="$build/platlib" \
        -DLLAVA_BUILD=OFF -DLLAMA_BUILD_CHAT=OFF "-DCMAKE_CUDA_ARCHITECTURES=$(IFS=';' && echo "${real[*]}")" -Wno-dev \
        ${flags[@]+"${flags[@]}"} ${launchers[@]+"${launchers[@]}"} "${CUDA_CMAKE_ARGS[@]}" > "$build.configure.log" 2>&1; then
        printf '%-7s %s\n' "$label" "CMake failed: $build.configure.log" && return 1
    fi
    objects=$backend/CMakeFiles/ggml-cuda.dir
    if [ $only_ours = 1 ]; then
        for file in $(ours); do
            targets+=("$objects/$file.o")
        done
    else
        targets=(ggml-cuda)
    fi
    NINJA_STATUS="$name [%f/%t] " ninja -C "$build" -j "$jobs" -k 0 "${targets[@]}" > "$build.log" 2>&1 || result=FAILED
    if [ $only_ours = 0 ]; then
        library=$(find "$build" -name 'libggml-cuda.so*' -type f -exec du -m {} + | awk 'NR == 1 { print $1 " MB" }')
    fi
    # the time of a file is that of the run that compiled it, which may have been an earlier one
    find "$build/$objects" -name '*.cu.o' -exec wc -c {} + | awk '!/total$/ { n++; b += $1 } END { print n + 0, b / 1e6 }' > "$build.sizes"
    awk -v arch="$label" -v all="$(ninja -C "$build" -t inputs ggml-cuda | grep -c '\.cu\.o$')" -v result="$result" \
        -v library="${library:-none}" -v wall=$((SECONDS - start)) -v sizes="$(cat "$build.sizes")" '
        !/^#/ && $4 ~ /\.cu\.o$/ { time[$4] = ($2 - $1) / 1000 }
        END {
            for (file in time) { total += time[file]; if (time[file] > longest) { longest = time[file]; name = file } }
            split(sizes, size, " "); sub(/.*\//, "", name)
            printf "%-7s %4d of %-4d %8.1f MB %9s %8.0f s %8.0f s   %-7s %s %.0f s\n", arch, size[1], all, size[2], library, total, wall, result, name, longest
        }' "$build/.ninja_log"
    [ $result = ok ] || { grep -m 3 -E 'error|FAILED' "$build.log" | sed 's/^/        /' && echo "        $build.log" && return 1; }
}

echo "nvcc $CUDA_VERSION ($NVCC), $jobs compilers at a time$([ $quick = 1 ] && echo ', few optimisations')$([ $only_ours = 1 ] && echo ', only:' "$(ours | tr '\n' ' ')")"
printf '%-7s %-12s %11s %9s %10s %10s   %-7s %s\n' arch '.cu files' objects library compile 'this run' result longest
status=0
if [ $together = 1 ]; then
    compile "${archs[@]}" || status=1
else
    for arch in "${archs[@]}"; do
        compile "$arch" || status=1
    done
fi
exit $status
