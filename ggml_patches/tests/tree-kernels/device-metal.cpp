// ggml's own Metal encoder (ggml-metal-ops.cpp, ggml-metal-device.cpp) on a device that runs the kernels on the CPU. Of the functions
// that need Apple's frameworks, those are here that the two operations call.

#include "../check.h"
#include "device.h"
#include "metal-launch.h"

#include "ggml-backend-impl.h"
#include "ggml-impl.h"
#include "ggml-metal/ggml-metal-common.h"
#include "ggml-metal/ggml-metal-device.h"
#include "ggml-metal/ggml-metal-fusion.h"
#include "ggml-metal/ggml-metal-ops.h"

#include <cstring>

#ifndef TREE_THREADS
#define TREE_THREADS 1024 // the largest threadgroup of the device
#endif

struct ggml_metal_pipeline {
    std::string kernel;
};

struct ggml_metal_encoder {
    metal_launch launch;
};

extern "C" {

ggml_metal_pipeline_with_params ggml_metal_library_get_pipeline(ggml_metal_library_t, const char *) {
    return {}; // none is compiled yet
}

ggml_metal_pipeline_with_params ggml_metal_library_compile_pipeline(
        ggml_metal_library_t, const char * base, const char * name, ggml_metal_cv_t constants) {
    static std::map<std::string, ggml_metal_pipeline> pipelines;
    CHECK(metal_has_kernel(base) && strcmp(base, name) == 0 && constants == nullptr);
    pipelines[base].kernel = base;

    ggml_metal_pipeline_with_params result = {};
    result.pipeline = &pipelines[base];
    return result;
}

int ggml_metal_pipeline_max_theads_per_threadgroup(ggml_metal_pipeline_with_params) { return TREE_THREADS; }

ggml_metal_library_t ggml_metal_device_get_library(ggml_metal_device_t)                      { return nullptr; }
bool                 ggml_metal_device_supports_op(ggml_metal_device_t, const ggml_tensor *) { return true; }
bool                 ggml_metal_fusion_info_enabled(const ggml_metal_fusion_info *)          { return false; }
int                  ggml_metal_fusion_info_debug  (const ggml_metal_fusion_info *)          { return 0; }

size_t ggml_backend_buft_get_alloc_size(ggml_backend_buffer_type_t, const ggml_tensor * t) { return ggml_nbytes(t); }

ggml_metal_encoder_t ggml_metal_encoder_init          (ggml_metal_cmd_buf_t, bool) { return new ggml_metal_encoder; }
void                 ggml_metal_encoder_free          (ggml_metal_encoder_t enc)   { delete enc; }
void                 ggml_metal_encoder_memory_barrier(ggml_metal_encoder_t)       {}
void                 ggml_metal_encoder_end_encoding  (ggml_metal_encoder_t)       {}

void ggml_metal_encoder_debug_group_push(ggml_metal_encoder_t, const char *) {}
void ggml_metal_encoder_debug_group_pop (ggml_metal_encoder_t)               {}

void ggml_metal_encoder_set_pipeline(ggml_metal_encoder_t enc, ggml_metal_pipeline_with_params pipeline) {
    enc->launch        = metal_launch();
    enc->launch.kernel = pipeline.pipeline->kernel;
}

void ggml_metal_encoder_set_bytes(ggml_metal_encoder_t enc, void * data, size_t size, int idx) {
    CHECK(idx == 0);
    enc->launch.n_bytes = size;
    enc->launch.bytes.resize((size + 7)/8);
    memcpy(enc->launch.bytes.data(), data, size);
}

void ggml_metal_encoder_set_buffer(ggml_metal_encoder_t enc, ggml_metal_buffer_id buffer, int idx) {
    CHECK(idx > 0 && enc->launch.buffers.count(idx) == 0);
    enc->launch.buffers[idx] = (char *) buffer.metal + buffer.offs;
}

void ggml_metal_encoder_set_threadgroup_memory_size(ggml_metal_encoder_t enc, size_t size, int idx) {
    CHECK(idx == 0 && size % 16 == 0 && size <= 32*1024);
    enc->launch.n_memory = size;
}

void ggml_metal_encoder_dispatch_threadgroups(
        ggml_metal_encoder_t enc, int tg0, int tg1, int tg2, int tptg0, int tptg1, int tptg2) {
    CHECK(tg2 == 1 && tptg1 == 1 && tptg2 == 1 && tptg0 <= TREE_THREADS);
    enc->launch.groups[0] = tg0;
    enc->launch.groups[1] = tg1;
    enc->launch.n_threads = tptg0;
    metal_run(enc->launch);
}

// a buffer begins where a page does
ggml_metal_buffer_id ggml_metal_buffer_get_id(ggml_metal_buffer_t, const ggml_tensor * t) {
    return { (void *) ((uintptr_t) t->data & ~(uintptr_t) 4095), (uintptr_t) t->data & 4095 };
}

} // extern "C"

// graphs of one operation

static ggml_context * make_context() {
    return ggml_init({ 64*ggml_tensor_overhead() + ggml_graph_overhead(), nullptr, /*.no_alloc =*/ true });
}

static ggml_tensor * place(ggml_tensor * t, const void * data) {
    static ggml_backend_buffer buffer = {};
    t->buffer = &buffer;
    t->data   = const_cast<void *>(data);
    return t;
}

static void compute(ggml_context * ctx, ggml_tensor * result) {
    ggml_cgraph * graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, result);
    result->flags |= GGML_TENSOR_FLAG_COMPUTE;

    ggml_metal_op_t encoder = ggml_metal_op_init(nullptr, nullptr, graph, nullptr, 0, ggml_graph_n_nodes(graph), true, false, 0);
    CHECK(ggml_metal_op_n_nodes(encoder) == 1);
    CHECK(ggml_metal_op_encode(encoder, 0) == 1);
    ggml_metal_op_free(encoder);
    ggml_free(ctx);
}

void device_tree_mask(
        const mask_shape & shape, const int32_t * cells, const int32_t * tokens, const int32_t * pos, void * dst) {
    ggml_context * ctx = make_context();

    ggml_tensor * t_cells  = place(ggml_new_tensor_1d(ctx, GGML_TYPE_I32, shape.n_kv), cells);
    ggml_tensor * t_tokens = place(ggml_new_tensor_2d(ctx, GGML_TYPE_I32, shape.n_words + 2, shape.n_tokens), tokens);
    ggml_tensor * t_pos    = pos ? place(ggml_new_tensor_1d(ctx, GGML_TYPE_I32, shape.n_kv), pos) : nullptr;

    compute(ctx, place(ggml_tree_mask(ctx, t_cells, t_tokens, t_pos, shape.is_f16 ? GGML_TYPE_F16 : GGML_TYPE_F32,
        (ggml_tree_window) shape.window, shape.n_window), dst));
}

void device_topk_stats(const float * x, size_t nb, int32_t n, int32_t n_rows, int32_t k, float * dst) {
    ggml_context * ctx = make_context();

    ggml_tensor * t_x = place(ggml_new_tensor_2d(ctx, GGML_TYPE_F32, n, n_rows), x);
    t_x->nb[1] = nb;

    compute(ctx, place(ggml_topk_stats(ctx, t_x, k), dst));
}
