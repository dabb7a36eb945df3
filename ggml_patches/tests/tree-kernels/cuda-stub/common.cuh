#pragma once

// In place of ggml-cuda/common.cuh, for a C++ compiler: as much of ggml and CUDA as tree-ops.cu takes. Blocks run one after the
// other, the threads of a block as coroutines.

#include "block.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

// CUDA

#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(n)

struct dim3 {
    unsigned x, y, z;
    dim3(int64_t x, int64_t y, int64_t z) : x((unsigned) x), y((unsigned) y), z((unsigned) z) {}
};

struct alignas(8)  uint2 { uint32_t x, y; };
struct alignas(16) uint4 { uint32_t x, y, z, w; };
struct alignas(16) int4  { int32_t  x, y, z, w; };

inline dim3 blockIdx(0, 0, 0);
inline dim3 threadIdx(0, 0, 0);

inline void __syncthreads() {
    const dim3 thread = threadIdx;
    block::barrier();
    threadIdx = thread;
}

inline int32_t atomicAdd(int32_t * to, int32_t value) {
    *to += value;
    return *to - value;
}

inline float    __uint_as_float(uint32_t bits) { float x;       memcpy(&x, &bits, sizeof(x));    return x;    }
inline uint32_t __float_as_uint(float x)       { uint32_t bits; memcpy(&bits, &x, sizeof(bits)); return bits; }

typedef void * cudaStream_t;

// ggml-cuda

struct ggml_backend_cuda_context {
    cudaStream_t stream() { return nullptr; }
};

struct ggml_cuda_kernel_launch_params {
    dim3 block_nums;
    dim3 block_dims;

    ggml_cuda_kernel_launch_params(dim3 block_nums, dim3 block_dims, size_t, cudaStream_t)
        : block_nums(block_nums), block_dims(block_dims) {}
};

inline void ggml_cuda_pdl_lc()   {}
inline void ggml_cuda_pdl_sync() {}

template <typename Kernel, typename... A>
void ggml_cuda_kernel_launch(Kernel kernel, const ggml_cuda_kernel_launch_params & params, A... arguments) {
    for (unsigned y = 0; y < params.block_nums.y; ++y) {
        for (unsigned x = 0; x < params.block_nums.x; ++x) {
            blockIdx = dim3(x, y, 0);
            block::run((int) params.block_dims.x, [&](int tid) {
                threadIdx = dim3(tid, 0, 0);
                kernel(arguments...);
            });
        }
    }
}

// ggml

#define GGML_ASSERT CHECK
#define GGML_TOPK_STATS_MAX_K 64

enum ggml_type { GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_I32 };
enum ggml_tree_window { GGML_TREE_WINDOW_NONE, GGML_TREE_WINDOW_SLIDING, GGML_TREE_WINDOW_CHUNKED };

struct ggml_tensor {
    ggml_type     type;
    int64_t       ne[4];
    size_t        nb[4];
    int32_t       op_params[4];
    ggml_tensor * src[4];
    void *        data;
};

inline int32_t ggml_get_op_params_i32(const ggml_tensor * t, uint32_t i) { return t->op_params[i]; }

inline bool ggml_is_contiguous(const ggml_tensor * t) {
    return t->nb[0] == (t->type == GGML_TYPE_F16 ? 2u : 4u) && t->nb[1] == t->nb[0]*t->ne[0];
}
