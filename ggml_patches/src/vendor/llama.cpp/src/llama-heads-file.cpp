#include "llama-heads-file.h"

#include "llama-impl.h"

#include <cstring>
#include <stdexcept>

// the limits of localspec's own reader: far more than anyone trains, few enough for a hostile file
static constexpr uint32_t MAX_HEADS  = 64;
static constexpr uint32_t MAX_LAYERS = 64;
static constexpr uint32_t MAX_SIZE   = 1 << 26;

static constexpr uint32_t FORMAT_VERSION = 1;

std::string llama_heads_spec::block_name(int head, int block, char part) const {
    const int stored = tied_blocks ? std::min(block, first_plain()) : block;
    return format("head.%d.blk.%d.%c", head, stored, part);
}

std::string llama_heads_spec::output_name(int head) const {
    return shared_output ? "output" : format("head.%d.output", head);
}

llama_heads_file::llama_heads_file(const char * path) : file(path, "rb") {
    gguf.reset(gguf_init_from_file(path, { /*.no_alloc =*/ true, /*.ctx =*/ nullptr }));
    if (!gguf) {
        throw std::runtime_error("it is no GGUF file, or damaged");
    }
    read_spec();
    check_tensors();
}

int64_t llama_heads_file::fact(const char * key, gguf_type type) const {
    const int64_t id = gguf_find_key(gguf.get(), key);
    if (id < 0) {
        throw std::runtime_error(format("it does not say %s", key));
    }
    if (gguf_get_kv_type(gguf.get(), id) != type) {
        throw std::runtime_error(format("%s is not of the type %s", key, gguf_type_name(type)));
    }
    return id;
}

uint32_t llama_heads_file::fact_u32(const char * key, uint32_t min, uint32_t max) const {
    const uint32_t value = gguf_get_val_u32(gguf.get(), fact(key, GGUF_TYPE_UINT32));
    if (value < min || value > max) {
        throw std::runtime_error(format("%s is %u, not in [%u, %u]", key, value, min, max));
    }
    return value;
}

bool llama_heads_file::fact_bool(const char * key) const {
    return gguf_get_val_bool(gguf.get(), fact(key, GGUF_TYPE_BOOL));
}

std::string llama_heads_file::fact_str(const char * key) const {
    return gguf_get_val_str(gguf.get(), fact(key, GGUF_TYPE_STRING));
}

void llama_heads_file::read_spec() {
    if (fact_str("general.architecture") != "hydra") {
        throw std::runtime_error("it holds no draft heads");
    }
    fact_u32("hydra.format_version", FORMAT_VERSION, FORMAT_VERSION);

    const std::string arch = fact_str("hydra.head_arch");
    if (arch == "hydra-prefix-mlp") {
        throw std::runtime_error("heads with a prefix layer are not evaluated here");
    }
    if (arch != "hydra-mlp" && arch != "medusa") {
        throw std::runtime_error(format("heads of the kind '%s' are not known", arch.c_str()));
    }

    heads.n_heads       = (int32_t) fact_u32("hydra.head_count",       1, MAX_HEADS);
    heads.n_layers      = (int32_t) fact_u32("hydra.block_count",      1, MAX_LAYERS);
    heads.n_embd        = (int32_t) fact_u32("hydra.embedding_length", 1, MAX_SIZE);
    heads.n_vocab       = (int32_t) fact_u32("hydra.vocab_size",       1, MAX_SIZE);
    heads.n_draft_vocab = (int32_t) fact_u32("hydra.draft_vocab_size", 0, (uint32_t) heads.n_vocab);

    if (gguf_find_key(gguf.get(), "hydra.later_vocab_size") >= 0) {
        heads.n_later_vocab = (int32_t) fact_u32("hydra.later_vocab_size", 0, (uint32_t) heads.n_rows());
        if (heads.n_later_vocab % LLAMA_HEADS_PACKED_ROWS != 0) {
            throw std::runtime_error(format("hydra.later_vocab_size is %d, no multiple of %d", heads.n_later_vocab, LLAMA_HEADS_PACKED_ROWS));
        }
    }

    heads.grounded      = fact_bool("hydra.grounded");
    heads.tied_blocks   = fact_bool("hydra.tied_blocks");
    heads.shared_output = fact_bool("hydra.shared_output");
    heads.output_bias   = fact_bool("hydra.output_bias");

    if (arch == "medusa" && heads.grounded) {
        throw std::runtime_error("Medusa heads are not grounded");
    }
}

int64_t llama_heads_file::tensor_id(const std::string & name) const {
    const int64_t id = gguf_find_tensor(gguf.get(), name.c_str());
    if (id < 0) {
        throw std::runtime_error(format("it lacks the tensor %s", name.c_str()));
    }
    return id;
}

ggml_type llama_heads_file::type(const std::string & name) const {
    return gguf_get_tensor_type(gguf.get(), tensor_id(name));
}

void llama_heads_file::check_tensor(const std::string & name, int64_t n_cols, int64_t n_rows, bool matrix) const {
    const int64_t     id   = tensor_id(name);
    const int64_t *   ne   = gguf_get_tensor_ne(gguf.get(), id);
    const ggml_type   kind = gguf_get_tensor_type(gguf.get(), id);

    if (ne[0] != n_cols || ne[1] != n_rows || ne[2] != 1 || ne[3] != 1) {
        throw std::runtime_error(format("the tensor %s has the shape [%lld, %lld, %lld, %lld], not [%lld, %lld]", name.c_str(),
                (long long) ne[0], (long long) ne[1], (long long) ne[2], (long long) ne[3], (long long) n_cols, (long long) n_rows));
    }

    const bool known = kind == GGML_TYPE_F32 || (matrix &&
            (kind == GGML_TYPE_F16 || kind == GGML_TYPE_BF16 || kind == GGML_TYPE_Q8_0 || kind == GGML_TYPE_Q4_0));
    if (!known && !(name == "d2t" && kind == GGML_TYPE_I32)) {
        throw std::runtime_error(format("the tensor %s has the type %s, which it cannot have", name.c_str(), ggml_type_name(kind)));
    }

    const size_t size  = gguf_get_tensor_size(gguf.get(), id);
    const size_t begin = gguf_get_data_offset(gguf.get()) + gguf_get_tensor_offset(gguf.get(), id);
    if (size > file.size() || begin > file.size() - size) {
        throw std::runtime_error("it is truncated");
    }
}

void llama_heads_file::check_tensors() const {
    const int64_t n = heads.n_embd;
    int64_t n_tensors = 0;

    const auto linear = [&](const std::string & name, int64_t n_cols, int64_t n_rows, bool bias) {
        check_tensor(name + ".weight", n_cols, n_rows, true);
        n_tensors++;
        if (bias) {
            check_tensor(name + ".bias", n_rows, 1, false);
            n_tensors++;
        }
    };

    for (int head = 0; head < heads.n_heads; ++head) {
        if (heads.grounded) {
            linear(heads.block_name(head, 0, 'l'), n*heads.n_inputs(head), n, true);
            linear(heads.block_name(head, 0, 'r'), n*heads.n_inputs(head), n, true);
        }
        const int first = heads.first_plain();
        const int end   = heads.tied_blocks ? std::min(heads.n_layers, first + 1) : heads.n_layers;
        for (int block = first; block < end; ++block) {
            linear(heads.block_name(head, block, 'l'), n, n, true);
        }
        if (head == 0 || !heads.shared_output) {
            linear(heads.output_name(head), n, heads.n_rows(), heads.output_bias);
        }
    }
    if (heads.n_draft_vocab > 0) {
        check_tensor("d2t", heads.n_draft_vocab, 1, false);
        n_tensors++;
    }
    if (gguf_get_n_tensors(gguf.get()) != n_tensors) {
        throw std::runtime_error("it holds tensors that heads of these sizes do not have");
    }
}

std::vector<char> llama_heads_file::read(const std::string & name) {
    const int64_t id = tensor_id(name);

    std::vector<char> data(gguf_get_tensor_size(gguf.get(), id));
    file.seek(gguf_get_data_offset(gguf.get()) + gguf_get_tensor_offset(gguf.get(), id), SEEK_SET);
    file.read_raw(data.data(), data.size());

    const ggml_type kind = gguf_get_tensor_type(gguf.get(), id);
    if (kind != GGML_TYPE_I32 && !ggml_validate_row_data(kind, data.data(), data.size())) {
        throw std::runtime_error(format("the tensor %s holds values that are not finite", name.c_str()));
    }
    return data;
}

std::vector<int32_t> llama_heads_file::read_d2t() {
    std::vector<int32_t> d2t(heads.n_draft_vocab);
    if (d2t.empty()) {
        return d2t;
    }
    if (type("d2t") != GGML_TYPE_I32) {
        throw std::runtime_error("d2t is not of the type I32");
    }
    const auto data = read("d2t");
    memcpy(d2t.data(), data.data(), data.size());

    std::vector<bool> seen(heads.n_vocab);
    for (const int32_t token : d2t) {
        if (token < 0 || token >= heads.n_vocab || seen[token]) {
            throw std::runtime_error(format("d2t names the token %d, which is outside the vocabulary or named twice", token));
        }
        seen[token] = true;
    }
    return d2t;
}
