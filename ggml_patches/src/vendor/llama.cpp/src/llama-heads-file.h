#pragma once

#include "llama-mmap.h"

#include "ggml-cpp.h"
#include "gguf.h"

#include <cstdint>
#include <string>
#include <vector>

static constexpr int LLAMA_HEADS_PACKED_ROWS = 64; // at a multiple of so many rows packed weights can be cut

// sizes of draft heads, as the header of their file states them
struct llama_heads_spec {
    int32_t n_heads       = 0; // the depth that they draft
    int32_t n_layers      = 0; // blocks of a head
    int32_t n_embd        = 0;
    int32_t n_vocab       = 0;
    int32_t n_draft_vocab = 0; // tokens that can be drafted, 0: all
    int32_t n_later_vocab = 0; // rows of the vocabulary head, the first ones, that heads after the first look at, 0: all

    bool grounded      = false; // the first block takes the hidden state and the embeddings of head + 1 tokens
    bool tied_blocks   = false; // all blocks but a grounded first one are stored once
    bool shared_output = false;
    bool output_bias   = false;

    int32_t n_rows()           const { return n_draft_vocab > 0 ? n_draft_vocab : n_vocab; }
    int32_t n_rows  (int head) const { return head > 0 && n_later_vocab > 0 ? n_later_vocab : n_rows(); }
    int32_t n_inputs(int head) const { return grounded ? head + 2 : 1; }
    int32_t first_plain()      const { return grounded ? 1 : 0; } // the first block of the form x + silu(W x + b)

    // name of a tensor, without ".weight" or ".bias"
    std::string block_name (int head, int block, char part) const;
    std::string output_name(int head)                       const;
};

// A file of draft heads, checked: it has all tensors of its spec and no others, in shapes and types that can be used, and is
// not truncated. The constructor and read() throw std::runtime_error.
class llama_heads_file {
public:
    explicit llama_heads_file(const char * path);

    const llama_heads_spec & spec() const { return heads; }

    ggml_type type(const std::string & name) const;

    // the bytes of a tensor, all of whose values are finite
    std::vector<char> read(const std::string & name);

    // target tokens of the rows of a trimmed vocabulary; empty: it is not trimmed
    std::vector<int32_t> read_d2t();

private:
    uint32_t    fact_u32 (const char * key, uint32_t min, uint32_t max) const;
    bool        fact_bool(const char * key) const;
    std::string fact_str (const char * key) const;
    int64_t     fact     (const char * key, gguf_type type) const;

    void read_spec();
    void check_tensors() const;
    void check_tensor(const std::string & name, int64_t n_cols, int64_t n_rows, bool matrix) const;
    int64_t tensor_id(const std::string & name) const;

    llama_file       file;
    gguf_context_ptr gguf;
    llama_heads_spec heads;
};
