// One matrix product through the public interface of ggml, for tests and the micro-benchmark.

#pragma once

#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

// Weight types with row kernels, and the bytes of their blocks that hold a 16-bit float.
struct weight_type {
    ggml_type        type;
    std::vector<int> halves;
};

inline const std::vector<weight_type> & weight_types() {
    static const std::vector<weight_type> types = {
        { GGML_TYPE_Q4_0,   { 0 }      }, { GGML_TYPE_Q4_1,   { 0, 2 } }, { GGML_TYPE_Q5_0, { 0 }      },
        { GGML_TYPE_Q5_1,   { 0, 2 }   }, { GGML_TYPE_Q8_0,   { 0 }    }, { GGML_TYPE_IQ4_NL, { 0 }    },
        { GGML_TYPE_Q2_K,   { 80, 82 } }, { GGML_TYPE_Q3_K,   { 108 }  }, { GGML_TYPE_Q4_K, { 0, 2 }   },
        { GGML_TYPE_Q5_K,   { 0, 2 }   }, { GGML_TYPE_Q6_K,   { 208 }  }, { GGML_TYPE_IQ4_XS, { 0 }    },
        { GGML_TYPE_F16,    { 0 }      }, { GGML_TYPE_BF16,   {}       },
    };
    return types;
}

inline void set_half(uint8_t * at, float value) {
    const ggml_fp16_t half = ggml_fp32_to_fp16(value);
    at[0] = uint8_t(half & 0xff);
    at[1] = uint8_t(half >> 8);
}

// Random blocks of the type: any bytes that a file may hold, but no NaN and no infinity. `scale` is the largest of the
// 16-bit floats; a tenth of the blocks is all zero.
inline std::vector<uint8_t> random_weights(const weight_type & what, int64_t n_elements, float scale, std::mt19937 & rng) {
    const size_t block = ggml_type_size(what.type);
    std::vector<uint8_t> data(n_elements/ggml_blck_size(what.type)*block);
    std::uniform_real_distribution<float> value(-scale, scale);
    if (what.type == GGML_TYPE_BF16) {
        for (size_t i = 0; i < data.size(); i += 2) {
            const ggml_bf16_t x = ggml_fp32_to_bf16(value(rng));
            data[i]     = uint8_t(x.bits & 0xff);
            data[i + 1] = uint8_t(x.bits >> 8);
        }
        return data;
    }
    for (size_t start = 0; start < data.size(); start += block) {
        if (rng() % 10 == 0) {
            continue;
        }
        for (size_t i = 0; i < block; ++i) {
            data[start + i] = uint8_t(rng());
        }
        for (int at : what.halves) {
            set_half(&data[start + at], value(rng));
        }
    }
    return data;
}

template <typename F>
F cpu_function(const char * name) {
    return (F) ggml_backend_reg_get_proc_address(ggml_backend_reg_by_name("CPU"), name);
}

// Where a model keeps weights that llama.cpp's own kernels rearrange when it is loaded.
inline ggml_backend_buffer_type_t repack_buffer_type() {
    ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    auto get = cpu_function<ggml_backend_dev_get_extra_bufts_t>("ggml_backend_dev_get_extra_bufts");
    for (ggml_backend_buffer_type_t * type = get ? get(cpu) : nullptr; type && *type; ++type) {
        if (strcmp(ggml_backend_buft_name(*type), "CPU_REPACK") == 0) {
            return *type;
        }
    }
    return nullptr;
}

// weights [m rows of k] x activations [n columns of k] -> [n columns of m]
class product {
public:
    // repack: keep the weights as a model does for llama.cpp's own kernels, if those rearrange such weights
    product(ggml_type type, int64_t m, int64_t k, int64_t n, bool repack = false) {
        ggml_init_params params = { ggml_tensor_overhead()*8 + ggml_graph_overhead(), nullptr, true };
        ctx     = ggml_init(params);
        weights = ggml_new_tensor_2d(ctx, type, k, m);
        values  = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, k, n);
        result  = ggml_mul_mat(ctx, weights, values);
        graph   = ggml_new_graph(ctx);
        ggml_build_forward_expand(graph, result);
        backend = ggml_backend_cpu_init();
        if (repack) {
            repack_weights();
        }
        buffer  = ggml_backend_alloc_ctx_tensors(ctx, backend);
    }

    ~product() {
        if (kept) {
            cpu_function<void (*)(ggml_tensor *, void *)>("ggml_panel_packed_free")(weights, kept);
        }
        ggml_backend_buffer_free(repacked);
        ggml_backend_buffer_free(buffer);
        ggml_backend_free(backend);
        ggml_free(ctx);
    }

    product(const product &) = delete;
    product & operator=(const product &) = delete;

    void set_weights(const std::vector<uint8_t> & data) {
        ggml_backend_tensor_set(weights, data.data(), 0, ggml_nbytes(weights));
    }

    void set_values(const float * data) {
        ggml_backend_tensor_set(values, data, 0, ggml_nbytes(values));
    }

    void compute(int n_threads) {
        ggml_backend_cpu_set_n_threads(backend, n_threads);
        if (ggml_backend_graph_compute(backend, graph) != GGML_STATUS_SUCCESS) {
            abort();
        }
    }

    // Room for packed panels as a model has it, if the row kernels pack such weights: the next compute() fills it, those after it
    // use it.
    bool make_room() {
        const size_t size = cpu_function<size_t (*)(const ggml_tensor *)>("ggml_panel_packed_size")(weights);
        if (size == 0) {
            return false;
        }
        using packed_new = void * (*)(ggml_tensor *, void *, void (*)(void *), void *);
        room.reset(std::aligned_alloc(64, size));  // exactly, for AddressSanitizer
        kept = cpu_function<packed_new>("ggml_panel_packed_new")(weights, room.get(), [](void * n) { ++*(int *) n; }, &n_packed);
        return true;
    }

    // how often the room was filled
    int times_packed() const {
        return n_packed;
    }

    std::vector<float> get() const {
        std::vector<float> data(ggml_nelements(result));
        ggml_backend_tensor_get(result, data.data(), 0, ggml_nbytes(result));
        return data;
    }

private:
    void repack_weights() {
        ggml_backend_buffer_type_t type = repack_buffer_type();
        if (!type) {
            return;
        }
        ggml_backend_buffer_t place = ggml_backend_buft_alloc_buffer(type, ggml_nbytes(weights));
        ggml_backend_tensor_alloc(place, weights, ggml_backend_buffer_get_base(place));
        if (ggml_backend_dev_supports_op(ggml_backend_get_device(backend), result)) {
            repacked = place;
            return;
        }
        weights->buffer = nullptr;
        weights->data   = nullptr;
        weights->extra  = nullptr;
        ggml_backend_buffer_free(place);
    }

    ggml_backend_buffer_t repacked = nullptr;
    std::unique_ptr<void, decltype(&free)> room { nullptr, &free };
    void *                kept     = nullptr;
    int                   n_packed = 0;
    ggml_context *        ctx;
    ggml_tensor *         weights;
    ggml_tensor *         values;
    ggml_tensor *         result;
    ggml_cgraph *         graph;
    ggml_backend_t        backend;
    ggml_backend_buffer_t buffer;
};
