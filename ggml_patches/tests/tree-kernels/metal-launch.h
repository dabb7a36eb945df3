#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

// What an encoder was told, and the dispatch that runs it.
struct metal_launch {
    std::string           kernel;
    std::vector<uint64_t> bytes; // of index 0
    size_t                n_bytes = 0;
    std::map<int, char *> buffers;
    size_t                n_memory = 0; // bytes of the threadgroup

    uint32_t groups[2] = { 0, 0 };
    int      n_threads = 0;
};

bool metal_has_kernel(const std::string & name);
void metal_run(const metal_launch & launch);
