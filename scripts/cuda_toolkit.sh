# shellcheck shell=bash
# Sourced by the scripts beside it: finds nvcc, and what is missing of a toolkit, in pip's packages.
#
#   find_cuda DIR     sets NVCC, CUDA_VERSION (13.0) and the array CUDA_CMAKE_ARGS; DIR takes pip's packages.

# the nvcc of CUDACXX, PATH, CUDA_HOME, CUDA_PATH or /usr/local/cuda*, the newest of the last
_find_nvcc() {
    local place
    for place in "${CUDACXX:-}" "$(command -v nvcc || true)" "${CUDA_HOME:-}/bin/nvcc" "${CUDA_PATH:-}/bin/nvcc"; do
        if [ -x "$place" ]; then
            echo "$place"
            return 0
        fi
    done
    for place in $(printf '%s\n' /usr/local/cuda*/bin/nvcc | sort -rV); do
        if [ -x "$place" ]; then
            echo "$place"
            return 0
        fi
    done
    return 1
}

# packages of pip, into a folder of their own; nothing of the user's environment changes
_pip_into() {
    local folder=$1
    shift
    echo "pip: $* into $folder" >&2
    python3 -m pip install --quiet --disable-pip-version-check --no-input --target "$folder" --upgrade "$@" >&2
}

# nvcc of pip's packages, which lie as a toolkit does but for some names that its tools look for
_nvcc_from_pip() {
    local pip=$1 root library
    root=$pip/nvidia/cu13
    if ! [ -x "$root/bin/nvcc" ]; then
        _pip_into "$pip" 'nvidia-cuda-nvcc==13.*' 'nvidia-cuda-runtime==13.*' 'nvidia-cuda-cccl==13.*' 'nvidia-cublas==13.*' || return 1
        chmod +x "$root"/bin/* "$root"/nvvm/bin/* || return 1
    fi
    [ -e "$root/lib64" ] || ln -s lib "$root/lib64"
    for library in "$root"/lib/lib*.so.[0-9]*; do
        [ -e "${library%%.so.*}.so" ] || ln -s "${library##*/}" "${library%%.so.*}.so"
    done
    echo "$root/bin/nvcc"
}

find_cuda() {
    local pip=$1 root header library headers stub
    if ! NVCC=$(_find_nvcc); then
        echo "no nvcc in CUDACXX, PATH, CUDA_HOME or /usr/local/cuda*: taking that of pip's packages" >&2
        NVCC=$(_nvcc_from_pip "$pip") || return 1
    fi
    # a wrapper does not tell where the toolkit is; nvcc itself does
    root=$("$NVCC" --dryrun -c x.cu -o x.o 2>&1 | sed -n 's/^#\$ TOP=//p')
    root=$(cd "$root" && pwd) || return 1
    [ -x "$root/bin/nvcc" ] && NVCC=$root/bin/nvcc
    CUDA_VERSION=$("$NVCC" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
    CUDA_CMAKE_ARGS=("-DGGML_CUDA=ON" "-DCMAKE_CUDA_COMPILER=$NVCC" "-DCUDAToolkit_ROOT=$root")

    header=$(find -L "$root" -name cublas_v2.h 2> /dev/null | head -n 1)
    if [ -z "$header" ]; then
        header=$(find "$pip" -name cublas_v2.h 2> /dev/null | head -n 1)
        if [ -z "$header" ]; then
            if [ "${CUDA_VERSION%%.*}" -ge 13 ]; then
                _pip_into "$pip" --no-deps "nvidia-cublas==${CUDA_VERSION%%.*}.*" || return 1
            else
                _pip_into "$pip" --no-deps "nvidia-cublas-cu${CUDA_VERSION%%.*}" || return 1
            fi
            header=$(find "$pip" -name cublas_v2.h | head -n 1)
            [ -n "$header" ] || { echo "pip's nvidia-cublas has no cublas_v2.h" >&2 && return 1; }
        fi
        headers=${header%/*}
        library=$(find "${headers%/include}" -name 'libcublas.so.*' | head -n 1)
        CUDA_CMAKE_ARGS+=("-DCMAKE_CUDA_FLAGS=-I$headers" "-DCUDA_cublas_LIBRARY=$library"
            "-DCUDA_cublasLt_LIBRARY=${library/libcublas/libcublasLt}")
    fi

    # where no driver and no stub of one is installed: linking a shared library asks for the name alone
    if ! find -L "$root" -name libcuda.so 2> /dev/null | grep -q . && ! ldconfig -p 2> /dev/null | grep -q 'libcuda\.so$'; then
        stub=$pip/stubs/libcuda.so
        mkdir -p "${stub%/*}"
        [ -e "$stub" ] || "${CC:-cc}" -shared -x c /dev/null -Wl,-soname,libcuda.so.1 -o "$stub" || return 1
        CUDA_CMAKE_ARGS+=("-DCUDA_cuda_driver_LIBRARY=$stub")
    fi
}
