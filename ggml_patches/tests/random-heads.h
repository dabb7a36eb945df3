#pragma once

// draft heads of random weights, and trees to draft with them

#include "check.h"

#include "ggml-cpp.h"
#include "gguf.h"

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

static std::mt19937 rng(42);

static constexpr int32_t N_HEADS = 3;
static constexpr int32_t N_DRAFT = 200;
static constexpr int32_t N_LATER = 128;

struct heads_writer {
    ggml_context_ptr ctx  { ggml_init({ 64*1024*1024, nullptr, false }) };
    gguf_context_ptr gguf { gguf_init_empty() };

    void add(const std::string & name, ggml_type type, int64_t n_cols, int64_t n_rows) {
        std::normal_distribution<float> normal(0.0f, n_rows > 1 ? 1.0f/std::sqrt((float) n_cols) : 0.1f);
        std::vector<float> values(n_cols*n_rows);
        for (auto & x : values) {
            x = normal(rng);
        }
        ggml_tensor * t = ggml_new_tensor_2d(ctx.get(), type, n_cols, n_rows);
        ggml_set_name(t, name.c_str());
        ggml_quantize_chunk(type, values.data(), t->data, 0, n_rows, n_cols, nullptr);
        gguf_add_tensor(gguf.get(), t);
    }

    void add_linear(const std::string & name, ggml_type type, int64_t n_cols, int64_t n_rows) {
        add(name + ".weight", type, n_cols, n_rows);
        add(name + ".bias", GGML_TYPE_F32, n_rows, 1);
    }
};

// grounded heads of two blocks with a trimmed vocabulary of the tokens 0, 3, 6, .., of which heads after the first know a part
static void write_heads(const char * path, ggml_type type, int32_t n_embd, int32_t n_vocab) {
    heads_writer w;
    auto * gguf = w.gguf.get();
    gguf_set_val_str(gguf, "general.architecture", "hydra");
    gguf_set_val_str(gguf, "hydra.head_arch", "hydra-mlp");
    const std::pair<const char *, uint32_t> numbers[] = {
        { "format_version", 1 }, { "head_count", N_HEADS }, { "block_count", 2 }, { "embedding_length", n_embd },
        { "vocab_size", n_vocab }, { "draft_vocab_size", N_DRAFT }, { "later_vocab_size", N_LATER } };
    for (const auto & [key, value] : numbers) {
        gguf_set_val_u32(gguf, (std::string("hydra.") + key).c_str(), value);
    }
    for (const char * key : { "grounded", "tied_blocks", "shared_output", "output_bias" }) {
        gguf_set_val_bool(gguf, (std::string("hydra.") + key).c_str(), true);
    }
    for (int head = 0; head < N_HEADS; ++head) {
        const std::string name = "head." + std::to_string(head) + ".blk.";
        w.add_linear(name + "0.l", type, n_embd*(head + 2), n_embd);
        w.add_linear(name + "0.r", type, n_embd*(head + 2), n_embd);
        w.add_linear(name + "1.l", type, n_embd, n_embd);
    }
    w.add_linear("output", type, n_embd, N_DRAFT);

    ggml_tensor * d2t = ggml_new_tensor_1d(w.ctx.get(), GGML_TYPE_I32, N_DRAFT);
    ggml_set_name(d2t, "d2t");
    for (int32_t i = 0; i < N_DRAFT; ++i) {
        ((int32_t *) d2t->data)[i] = i*(n_vocab/N_DRAFT);
    }
    gguf_add_tensor(gguf, d2t);
    CHECK(gguf_write_to_file(gguf, path, false));
}

struct tree {
    std::vector<int32_t> parents = { -1 };
    std::vector<int32_t> ranks   = {  0 };

    static tree random() {
        tree t;
        std::vector<int32_t> depth = { 0 }, n_children = { 0 };
        const int n = std::uniform_int_distribution<int>(1, 40)(rng);
        while ((int) t.parents.size() < n) {
            const int parent = std::uniform_int_distribution<int>(0, (int) t.parents.size() - 1)(rng);
            if (depth[parent] < N_HEADS) {
                t.parents.push_back(parent);
                t.ranks  .push_back(n_children[parent]++);
                depth.push_back(depth[parent] + 1);
                n_children.push_back(0);
            }
        }
        return t;
    }
};
