#include "llama-heads-weights.h"

#include "llama-cpu-function.h"
#include "llama-impl.h"
#include "llama-model.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

static constexpr size_t ALIGN = 64; // of packed weights

// rows of any type as F32
static void to_floats(ggml_type type, const void * data, float * out, int64_t n) {
    if (type == GGML_TYPE_F32) {
        memcpy(out, data, n*sizeof(float));
    } else {
        ggml_get_type_traits(type)->to_float(data, out, n);
    }
}

void llama_heads_embedding(const llama_model & model, llama_token token, float * out) {
    const ggml_tensor * table = model.tok_embd;

    if (ggml_backend_buffer_is_host(table->buffer)) {
        to_floats(table->type, (const char *) table->data + token*table->nb[1], out, table->ne[0]);
        return;
    }
    std::vector<char> row(table->nb[1]);
    ggml_backend_tensor_get(table, row.data(), token*table->nb[1], row.size());
    to_floats(table->type, row.data(), out, table->ne[0]);
}

void llama_heads_prefetch(const llama_model & model, llama_token token) {
#if defined(__GNUC__)
    const ggml_tensor * table = model.tok_embd;
    if (ggml_backend_buffer_is_host(table->buffer)) {
        const char * row = (const char *) table->data + token*table->nb[1];
        for (size_t i = 0; i < table->nb[1]; i += 64) {
            __builtin_prefetch(row + i);
        }
    }
#else
    GGML_UNUSED(model);
    GGML_UNUSED(token);
#endif
}

llama_heads_weights::llama_heads_weights(llama_heads_file & file, const llama_model & model, ggml_backend_dev_t dev, bool host_ops) {
    const auto & spec = file.spec();

    ctx.reset(ggml_init({ ggml_tensor_overhead()*(4 + 4*(size_t) spec.n_heads*(spec.n_layers + 1)), nullptr, true }));
    if (!ctx) {
        throw std::runtime_error("memory does not suffice");
    }

    const int64_t n = spec.n_embd;
    d2t = file.read_d2t();
    load_slots(file);

    for (int head = 0; head < spec.n_heads; ++head) {
        blocks.emplace_back();
        for (int block = spec.first_plain(); block < spec.n_layers; ++block) {
            const auto name = spec.block_name(head, block, 'l');
            blocks.back().push_back({ load(file, name + ".weight", n, n), load(file, name + ".bias", n, 1) });
        }
        const auto name = spec.output_name(head);
        outputs.push_back({
            load(file, name + ".weight", n, spec.n_rows()),
            spec.output_bias ? load(file, name + ".bias", spec.n_rows(), 1) : nullptr });
    }

    if (!host_ops && spec.grounded) {
        load_table(model, dev);
    }
    if (ggml_backend_dev_type(dev) == GGML_BACKEND_DEVICE_TYPE_CPU) {
        place_on_host(dev);
    } else {
        place_on_device(dev);
    }
    ggml_backend_buffer_set_usage(buffer.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
}

void llama_heads_weights::packed_deleter::operator()(void * packed) const {
    cpu_function<void (*)(ggml_tensor *, void *)>("ggml_panel_packed_free")(tensor, packed);
}

llama_heads_weights::weight & llama_heads_weights::add(const std::string & name, ggml_type type, int64_t ne0, int64_t ne1) {
    ggml_tensor * tensor = ggml_new_tensor_2d(ctx.get(), type, ne0, ne1);
    ggml_set_name(tensor, name.c_str());
    weights.push_back({ tensor, std::vector<char>(ggml_nbytes(tensor)) });
    return weights.back();
}

ggml_tensor * llama_heads_weights::load(llama_heads_file & file, const std::string & name, int64_t ne0, int64_t ne1) {
    ggml_tensor *& tensor = loaded[name]; // blocks and outputs may be shared
    if (!tensor) {
        auto & w = add(name, file.type(name), ne0, ne1);
        w.data = file.read(name);
        tensor = w.tensor;
    }
    return tensor;
}

// columns are cut out as they are where no block of weights lies across a cut and all heads have the same type, else as F32
static ggml_type slot_type(const llama_heads_file & file) {
    const auto &    spec = file.spec();
    const ggml_type type = file.type(spec.block_name(0, 0, 'l') + ".weight");

    for (int head = 0; head < spec.n_heads; ++head) {
        for (const char part : { 'l', 'r' }) {
            if (file.type(spec.block_name(head, 0, part) + ".weight") != type || spec.n_embd % ggml_blck_size(type) != 0) {
                return GGML_TYPE_F32;
            }
        }
    }
    return type;
}

void llama_heads_weights::load_slots(llama_heads_file & file) {
    const auto &  spec = file.spec();
    const int64_t n    = spec.n_embd;

    if (!spec.grounded) {
        return;
    }

    const ggml_type type = slot_type(file);

    std::vector<weight *> parts;
    for (int level = 0; level < spec.n_heads; ++level) {
        parts.push_back(&add(format("slot.%d", level), type, level == 0 ? 2*n : n, 2*n*(spec.n_heads - level)));
        slots.push_back(parts.back()->tensor);
    }
    weight & bias = add("slot.bias", GGML_TYPE_F32, 2*n*spec.n_heads, 1);
    first_bias = bias.tensor;

    for (int head = 0; head < spec.n_heads; ++head) {
        for (int part = 0; part < 2; ++part) {
            const auto name = spec.block_name(head, 0, "lr"[part]);
            const auto kept = file.type(name + ".weight");
            const auto ne0  = n*spec.n_inputs(head);

            auto data = file.read(name + ".weight");
            if (kept != type) {
                std::vector<char> floats(n*ne0*sizeof(float));
                to_floats(kept, data.data(), (float *) floats.data(), n*ne0);
                data = std::move(floats);
            }
            const size_t stride = ggml_row_size(type, ne0);
            for (int level = 0; level <= head; ++level) {
                const size_t first = level == 0 ? 0 : ggml_row_size(type, (level + 1)*n);
                const size_t width = ggml_row_size(type, slots[level]->ne[0]);
                char * out = parts[level]->data.data() + (2*(head - level) + part)*n*width;
                for (int64_t row = 0; row < n; ++row) {
                    memcpy(out + row*width, data.data() + row*stride + first, width);
                }
            }
            const auto values = file.read(name + ".bias");
            memcpy(bias.data.data() + (2*head + part)*n*sizeof(float), values.data(), values.size());
        }
    }
}

// that of the model's table, if the device can look up rows of it
static ggml_type table_type(const ggml_tensor * table, ggml_backend_dev_t dev) {
    ggml_context_ptr ctx(ggml_init({ ggml_tensor_overhead()*3, nullptr, true }));
    ggml_tensor * rows = ggml_get_rows(ctx.get(), ggml_new_tensor_2d(ctx.get(), table->type, table->ne[0], table->ne[1]),
            ggml_new_tensor_1d(ctx.get(), GGML_TYPE_I32, 1));
    return ggml_backend_dev_supports_op(dev, rows) ? table->type : GGML_TYPE_F16;
}

void llama_heads_weights::load_table(const llama_model & model, ggml_backend_dev_t dev) {
    const ggml_tensor * all = model.tok_embd;
    const int64_t n      = all->ne[0];
    const int64_t n_rows = outputs[0].weight->ne[1];

    auto & w = add("table", table_type(all, dev), n, n_rows);
    table = w.tensor;
    if (d2t.empty() && table->type == all->type) {
        ggml_backend_tensor_get(all, w.data.data(), 0, w.data.size());
        return;
    }
    std::vector<float> floats(n);
    for (int64_t row = 0; row < n_rows; ++row) {
        const int32_t token = d2t.empty() ? (int32_t) row : d2t[row];
        char * out = w.data.data() + row*table->nb[1];
        if (table->type == all->type) {
            ggml_backend_tensor_get(all, out, token*all->nb[1], all->nb[1]);
        } else {
            llama_heads_embedding(model, token, floats.data());
            ggml_fp32_to_fp16_row(floats.data(), (ggml_fp16_t *) out, n);
        }
    }
}

void llama_heads_weights::place_on_device(ggml_backend_dev_t dev) {
    buffer.reset(ggml_backend_alloc_ctx_tensors_from_buft(ctx.get(), ggml_backend_dev_buffer_type(dev)));
    if (!buffer) {
        throw std::runtime_error(format("the memory of %s does not suffice", ggml_backend_dev_name(dev)));
    }
    for (auto & weight : weights) {
        ggml_backend_tensor_set(weight.tensor, weight.data.data(), 0, weight.data.size());
        weight.data = {};
    }
}

// the row kernels want weights as panels (ggml-cpu/panel/panel-packed.h). they are made right away, in place of the weights
void llama_heads_weights::place_on_host(ggml_backend_dev_t dev) {
    size_t size = ALIGN;
    for (const auto & weight : weights) {
        size += GGML_PAD(ggml_nbytes(weight.tensor), ALIGN);
    }
    buffer.reset(ggml_backend_buft_alloc_buffer(ggml_backend_dev_buffer_type(dev), size));
    if (!buffer) {
        throw std::runtime_error("memory does not suffice");
    }

    const auto packed_size = cpu_function<size_t (*)(const ggml_tensor *)>("ggml_panel_packed_size");
    const auto packed_new  = cpu_function<void * (*)(ggml_tensor *, void *, void (*)(void *), void *)>("ggml_panel_packed_new");
    const auto packed_fill = cpu_function<void (*)(ggml_tensor *)>("ggml_panel_packed_fill");

    const auto on_packed = [](void * user) {
        auto & w = *(weight *) user;
        w.tensor->data = w.room;
        w.data = {};
    };

    char * next = (char *) GGML_PAD((uintptr_t) ggml_backend_buffer_get_base(buffer.get()), ALIGN);
    for (auto & weight : weights) {
        ggml_backend_tensor_alloc(buffer.get(), weight.tensor, next);
        if (weight.tensor != table && packed_size && packed_size(weight.tensor) > 0) {
            weight.room         = next;
            weight.tensor->data = weight.data.data();
            weight.packed       = std::unique_ptr<void, packed_deleter>(packed_new(weight.tensor, weight.room, on_packed, &weight), { weight.tensor });
            packed_fill(weight.tensor);
        } else {
            memcpy(next, weight.data.data(), weight.data.size());
            weight.data = {};
        }
        next += GGML_PAD(ggml_nbytes(weight.tensor), ALIGN);
    }
}
