#pragma once

// In place of cuBLAS's header where it is not installed: ggml-cuda/common.cuh includes it, and tree-ops.cu uses nothing of it.

#define CUBLAS_VER_MAJOR 13
#define CUBLAS_VER_MINOR 0

typedef struct cublasContext * cublasHandle_t;

enum cublasStatus_t { CUBLAS_STATUS_SUCCESS };
enum cublasMath_t   { CUBLAS_TF32_TENSOR_OP_MATH };

const char *   cublasGetStatusString(cublasStatus_t);
cublasStatus_t cublasCreate(cublasHandle_t *);
cublasStatus_t cublasDestroy(cublasHandle_t);
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t);
cublasStatus_t cublasSetStream(cublasHandle_t, cudaStream_t);
cublasStatus_t cublasSetWorkspace(cublasHandle_t, void *, size_t);
