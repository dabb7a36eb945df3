#include "row-kernels.h"

#include "panel/panel-simd.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

// What this machine could do at best, as a measure for the kernels: bytes read from memory, and products of 8-bit
// integers summed in 32 bits, by the instructions that the kernels use.

using peak_clock = std::chrono::steady_clock;

namespace {

// Runs `work(thread)` on all threads at once and returns the seconds until the last one is done.
template <typename F>
double on_all_threads(int n_threads, F work) {
    std::atomic<int>  n_ready{0};
    std::atomic<bool> go{false};

    std::vector<std::thread> threads;
    for (int i = 1; i < n_threads; ++i) {
        threads.emplace_back([&, i] {
            n_ready.fetch_add(1);
            while (!go.load(std::memory_order_acquire)) {
                std::this_thread::yield();
            }
            work(i);
        });
    }
    while (n_ready.load() < n_threads - 1) {
        std::this_thread::yield();
    }

    const auto start = peak_clock::now();
    go.store(true, std::memory_order_release);
    work(0);
    for (auto & thread : threads) {
        thread.join();
    }
    return std::chrono::duration<double>(peak_clock::now() - start).count();
}

// The best of several rounds: a peak is what is possible, not what usually happens.
template <typename F>
double best_seconds(int n_threads, F work) {
    double best = on_all_threads(n_threads, work);
    for (int round = 0; round < 7; ++round) {
        best = std::min(best, on_all_threads(n_threads, work));
    }
    return best;
}

#if defined(PANEL_LANES)

// stops the compiler from dropping a computation
template <typename T> void keep(const T & value) {
#if defined(_MSC_VER)
    volatile T sink = value;
    (void) sink;
#else
    asm volatile("" : : "x"(value) : "memory");
#endif
}

void read_all(const char * data, size_t size) {
    pvi sum[4] = { pv_zero(), pv_zero(), pv_zero(), pv_zero() };
    for (size_t i = 0; i + 4*PANEL_VEC_BYTES <= size; i += 4*PANEL_VEC_BYTES) {
        for (int j = 0; j < 4; ++j) {
            sum[j] = pv_or(sum[j], pv_loadu(data + i + j*PANEL_VEC_BYTES));
        }
    }
    for (const pvi & s : sum) {
        keep(s);
    }
}

// One product of all lanes. The empty assembly hides the weights from the compiler, else it would compute one product once.
PANEL_INLINE void product(pvi & acc, pvi & weights, pvi values) {
#if !defined(_MSC_VER)
    asm("" : "+v"(weights));
#endif
#if PANEL_VNNI
    acc = pv_dot(acc, weights, values);
#else
    acc = pv_add32(acc, pv_madd16(pv_madd_u8s8(weights, values), values));
#endif
}

// Eight chains that do not wait for each other; returns the number of products.
#if !defined(_MSC_VER)
__attribute__((noinline))
#endif
int64_t multiply(int64_t n_rounds) {
    pvi a0 = pv_zero(), a1 = a0, a2 = a0, a3 = a0, a4 = a0, a5 = a0, a6 = a0, a7 = a0;
    pvi       weights = pv_set1_8(3);
    const pvi values  = pv_set1_8(1);
    for (int64_t i = 0; i < n_rounds; ++i) {
        product(a0, weights, values);
        product(a1, weights, values);
        product(a2, weights, values);
        product(a3, weights, values);
        product(a4, weights, values);
        product(a5, weights, values);
        product(a6, weights, values);
        product(a7, weights, values);
    }
    keep(pv_add32(pv_add32(pv_add32(a0, a1), pv_add32(a2, a3)), pv_add32(pv_add32(a4, a5), pv_add32(a6, a7))));
    return n_rounds*8*PANEL_VEC_BYTES;
}

#endif

} // namespace

bool ggml_row_kernels_peaks(int n_threads, double * read_bytes, double * products) {
#if defined(PANEL_LANES)
    if (n_threads < 1) {
        return false;
    }
    constexpr size_t PART = size_t(64) << 20;  // a thread; far more than its share of a cache
    std::vector<std::unique_ptr<char[]>> data(n_threads);
    on_all_threads(n_threads, [&](int i) {
        data[i].reset(new char[PART]);
        std::fill_n(data[i].get(), PART, char(i));
    });
    *read_bytes = n_threads*double(PART)/best_seconds(n_threads, [&](int i) { read_all(data[i].get(), PART); });

    constexpr int64_t N_ROUNDS = int64_t(1) << 20;
    int64_t n = 0;
    const double seconds = best_seconds(n_threads, [&](int i) {
        const int64_t done = multiply(N_ROUNDS);
        if (i == 0) {
            n = done;
        }
    });
    *products = n_threads*double(n)/seconds;
    return true;
#else
    (void) n_threads;
    (void) read_bytes;
    (void) products;
    return false;
#endif
}
