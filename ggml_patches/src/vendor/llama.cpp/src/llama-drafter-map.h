#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

// std::hash of an integer is that integer: where buckets are a power of two, the upper half of a key would not count
struct llama_drafter_hash {
    size_t operator()(uint64_t key) const noexcept {
        key *= 0x9e3779b97f4a7c15;
        key ^= key >> 32;
        key *= 0xd6e8feb86659fd93;
        return (size_t) (key ^ key >> 32);
    }
};

template <typename T>
using llama_drafter_map = std::unordered_map<uint64_t, T, llama_drafter_hash>;

// bytes of memory held: what glibc's malloc gives to libstdc++, an estimate elsewhere
template <typename T>
size_t llama_drafter_map_n_bytes(const llama_drafter_map<T> & map) {
    // an element has a pointer to the next one, and a header of malloc
    return map.bucket_count()*sizeof(void *) + map.size()*(sizeof(*map.begin()) + 2*sizeof(void *));
}
