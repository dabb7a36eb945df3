// kernels/tree.metal on the CPU. TREE_METAL: that file, or the one that a build embeds, without its [[attributes]]: C++ has no place
// for [[threadgroup(0)]] where `threadgroup` is a macro.

#include <metal_stdlib>

#include TREE_METAL

#undef device
#undef constant
#undef threadgroup
#undef thread
#undef kernel

#include "block.h"
#include "metal-launch.h"

#include <tuple>
#include <type_traits>

void metal_stub_barrier() {
    block::barrier();
}

// the arguments of a kernel, by their types: index 0 is a reference, buffers are numbered in their order
struct argument_list {
    const metal_launch & launch;
    std::vector<uint4> & memory;
    uint3                group;
    ushort3              thread;
    ushort3              threads;
    int                  n_indices = 0;
    int                  n_ushort3 = 0;

    template <typename T> T next() {
        if constexpr (std::is_reference_v<T>) {
            CHECK(n_indices++ == 0 && sizeof(std::remove_reference_t<T>) == launch.n_bytes);
            return *(std::remove_reference_t<T> *) const_cast<uint64_t *>(launch.bytes.data());
        } else if constexpr (std::is_same_v<T, tree_stats_shared *>) {
            CHECK(memory.size()*sizeof(uint4) >= sizeof(tree_stats_shared));
            return (tree_stats_shared *) memory.data();
        } else if constexpr (std::is_pointer_v<T>) {
            CHECK(launch.buffers.count(n_indices) == 1);
            return launch.buffers.at(n_indices++);
        } else if constexpr (std::is_same_v<T, uint3>) {
            return group;
        } else {
            return n_ushort3++ == 0 ? thread : threads; // the order of all kernels of ggml
        }
    }
};

template <typename... A> static void run(void (*kernel)(A...), const metal_launch & launch) {
    std::vector<uint4> memory(launch.n_memory/sizeof(uint4));

    for (uint32_t y = 0; y < launch.groups[1]; ++y) {
        for (uint32_t x = 0; x < launch.groups[0]; ++x) {
            memset(memory.data(), 0xaa, launch.n_memory); // a device's memory has anything in it

            block::run(launch.n_threads, [&](int tid) {
                argument_list list = {
                    launch, memory, { x, y, 0 }, { (uint16_t) tid, 0, 0 }, { (uint16_t) launch.n_threads, 1, 1 } };
                std::tuple<A...> arguments{ list.next<A>()... };
                CHECK(list.n_indices == (int) launch.buffers.size() + 1);
                std::apply(kernel, arguments);
            });
        }
    }
}

bool metal_has_kernel(const std::string & name) {
    return name == "kernel_tree_mask" || name == "kernel_topk_stats_f32";
}

void metal_run(const metal_launch & launch) {
    CHECK(metal_has_kernel(launch.kernel));
    if (launch.kernel == "kernel_tree_mask") {
        run(kernel_tree_mask, launch);
    } else {
        run(kernel_topk_stats_f32, launch);
    }
}
